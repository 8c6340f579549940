"""A run as a document for people and programs who were not there: rows, a timeline, JSON, Markdown and HTML.

Everything here is made of an agent's state, its events and its tree of subagents; nothing asks a server.
"""
