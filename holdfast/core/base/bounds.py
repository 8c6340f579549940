"""Bounds of data that modules share, or that must fit into each other, each with its reason. Holds numbers only.

A bound that only one module uses stands in that module, named `*_MAX`. The sizes here follow from one rule:
nothing over 256 KB enters Temporal's history, because an over-limit input fails the workflow task for ever and an
over-limit result repeats the side effect.
"""

from typing import Final

PAYLOAD_BYTES_MAX: Final = 256 * 1024
"""The largest input or result of an activity, a signal or a start, in encoded bytes."""

QUESTION_BYTES_MAX: Final = 128 * 1024
"""The largest question, in UTF-8 bytes: half a payload, so that definition and question fit one start."""

DEFINITION_BYTES_MAX: Final = 64 * 1024
"""The largest agent definition, in canonical JSON bytes."""

NAME_CHARS_MAX: Final = 64
"""The longest agent or tool name; for tools it is the provider's own limit."""

CALL_ID_CHARS_MAX: Final = 64
"""The longest call id that is kept as the provider gave it; a longer one is replaced by ours."""

REASON_CHARS_MAX: Final = 1_000
"""The longest reason text of a stop."""

SOURCE_CHARS_MAX: Final = 200
"""The longest name of the source of a stop or a decision: a person, a hook, a tool."""

ERROR_CHARS_MAX: Final = 2_000
"""The longest error text kept; a larger failure loses its type on the server and can lose its completion."""

TOOL_RESULT_CHARS_MAX: Final = 50_000
"""The longest tool result the model sees, in characters."""

TOOL_RESULT_BYTES_MAX: Final = 200 * 1024
"""The same in bytes of JSON: control characters take six of them."""

STEP_RESULTS_BYTES_MAX: Final = 384 * 1024
"""The most all results (or errors) of a step take as JSON: a step fits a query's answer, its calls share it evenly."""

FALLBACKS_MAX: Final = 8
"""The most routes that one agent may fall back to."""

OUTPUT_TOKENS_MAX: Final = 16_384
"""The longest answer of a model call where the definition says nothing, in tokens: a model in a loop never ends one."""

RESPONSE_BYTES_MAX: Final = 112 * 1024
"""The longest text of one model answer that is kept, in bytes of JSON."""

REASONING_BYTES_MAX: Final = 16 * 1024
"""The longest reasoning text of one answer that is kept, in bytes of JSON."""

ARGUMENTS_BYTES_MAX: Final = 64 * 1024
"""The most tool arguments of one answer together, in bytes; text, reasoning and these fit one payload.

Also the most that arguments and the model's own texts of them take together: above that only the arguments are kept.
"""

CALLS_PER_STEP_MAX: Final = 64
"""The most tool calls of one step that run; further ones are answered with an error."""

CALLS_KEPT_MAX: Final = 128
"""The most tool calls of one model answer that are kept at all; OpenAI allows no more tools than that."""

DEPTH_MAX: Final = 10
"""The deepest nesting of subagents, whatever a definition says."""

REPORT_CHARS_MAX: Final = 20_000
"""The longest report on a whole folder of agents: ten files with as many problems as an error holds."""

MESSAGES_WAITING_MAX: Final = 64
"""The most messages kept for the next step; further ones are refused until it begins."""

MESSAGES_WAITING_BYTES_MAX: Final = 2 * PAYLOAD_BYTES_MAX
"""The most they take together, in bytes of JSON: until the step begins, every page of the state holds them."""

WORD_CHARS_MAX: Final = 200
"""The longest identifier kept from a provider: a finish reason, a model's name, an answer's id."""

WARNINGS_MAX: Final = 20
"""The most warnings kept on one execution."""

WARNING_CHARS_MAX: Final = 500
"""The longest text of one of them."""

PRICE_USD_MAX: Final = 1_000_000
"""The highest price of a million tokens, in US dollars, so that no sum becomes infinite."""

HOOKS_MAX: Final = 64
"""The most hooks of one agent."""

HOOK_CHANGES_BYTES_MAX: Final = 64 * 1024
"""The most that the changes of all hooks of one place take together, in bytes of JSON: one event holds them."""

HOOK_CHANGES_STEP_BYTES_MAX: Final = 768 * 1024
"""The same for the hooks around all calls of one step: one task can bring all, and the server allows a task 4 MB."""

EDITS_STEP_BYTES_MAX: Final = 768 * 1024
"""The same for edited arguments of all calls of one step: one task can bring all decisions."""

STOP_SIGNALS_MAX: Final = 16
"""The most stop signals from outside kept per execution; more would say nothing new."""

SECONDS_MAX: Final = 10 * 365 * 24 * 3600
"""The longest time limit: ten years, far inside what dates and timers can hold."""

NAMES_LISTED_MAX: Final = 20
"""How many known names an error about an unknown one lists."""

MALFORMED_CHARS_MAX: Final = 200
"""The longest text about a call that cannot be used; there can be CALLS_KEPT_MAX of them in one payload."""

ARGUMENTS_DEPTH_MAX: Final = 64
"""The deepest nesting of a tool's arguments; JSON readers give up at about 200 levels."""

DELTA_BYTES_MAX: Final = 128 * 1024
"""The most transcript that travels inside one inference input; the rest is fetched by query."""

RESENT_BYTES_MAX: Final = 2 * 1024
"""The same when a conversation is sent from its beginning again, because the definition changed."""

PAGE_BYTES_MAX: Final = 1536 * 1024
"""The target size of a query's answer; the server refuses 2 MB. Large, because a closed run replays for each.

A single step or message is never split, so an answer can pass this by one step's size.
"""

RESULT_BYTES_MAX: Final = 64 * 1024
"""The largest final state that a workflow's result carries whole; a larger one is read by query.

Small, because it counts once more against the bytes per step that the history may grow by.
"""

CONTINUE_EVENTS: Final = 2_000
"""After so many history events an execution continues as new: a replay costs 1 ms or more per step."""

CONTINUE_EVENTS_MAX: Final = 10_000
"""The most that can be set for that: Temporal warns at 10,240; a worker needs some 6 s to replay so many."""

SEGMENT_BYTES_MIN: Final = 16 * 1024
"""The least that is sealed into a segment; the history holds a reference to it from there on."""

CARRIED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The most that an execution carries over; beyond that it ends. Reading it must fit into the 2 s of a task."""

MODEL_GRACE_SECONDS: Final = 1.0
"""How long a stopped execution waits for the partial answer of its model call."""

SUBAGENT_GRACE_SECONDS: Final = 3.0
"""The same for the usage of its subagents: each waits for its own model call first."""

LATE_SECONDS: Final = 2 * MODEL_GRACE_SECONDS
"""How long after the time limit the server waits for a call's end; no attempt of it is begun in that time."""

PROGRESS_CHARS_MAX: Final = 4_000
"""How much of the end of a streaming answer its heartbeats hold: some 0.3 s of the fastest models."""

TOOLS_MAX: Final = 128
"""The most tools of one agent: OpenAI's limit."""

TOOL_DESCRIPTION_CHARS_MAX: Final = 1_024
"""The longest description of a tool: OpenAI's limit, checked when the tool is made and not in every run."""

CALL_ID_KEPT_CHARS_MAX: Final = 200
"""The longest call id that a stored message may answer: ours and every provider's are far shorter."""

SUMMARY_BYTES_MAX: Final = 32 * 1024
"""The longest summary that is kept, in bytes of JSON; it stands in every request after it."""

FORMAT_PROBLEM_CHARS_MAX: Final = 1_000
"""The longest text on why an answer breaks its response format: the model is to read it."""

FORMAT_PROBLEMS_MAX: Final = 5
"""How many problems of an answer that text names; the model finds the rest when it is asked again."""

FORMAT_PLACE_CHARS_MAX: Final = 120
"""The longest place or complaint within one of them: both can quote the answer."""

TEXT_CHARS_MAX: Final = 1024 * 1024
"""The longest text in any value at all; most have a tighter limit of their own that holds before this one."""

STATE_BYTES_MAX: Final = 128 * 1024 * 1024
"""The largest saved state that is written or read: twice what 10,000 steps with results of 2 KB take."""

STORED_BYTES_MIN: Final = PAYLOAD_BYTES_MAX + 4 * 1024
"""From this size on a payload is stored outside the history; what is checked against PAYLOAD_BYTES_MAX stays inside.

So a storage outage never loses the result of a tool or a model, and never repeats its call.
"""

ANSWER_INLINE_BYTES_MAX: Final = 1900 * 1024
"""The largest answer of a query that goes without the storage: the server refuses 2 MB."""

STORED_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much of what is stored outside the history a process caches: a replay reads all that its run refers to."""

REPORTED_TOKENS_MAX: Final = 10**12
"""A reported token count above this is a fault of the endpoint and is cut to it."""

TASK_CHARS_MAX: Final = 200
"""How much of its question a record holds; the snapshot has all of it."""

RECORDED_TEXT_CHARS_MAX: Final = 2_000
"""How much of its answer a record holds; the snapshot has all of it."""

MESSAGE_ID_CHARS_MAX: Final = 64
"""The longest id of a message to a session: a UUID has 36."""

TENANT_CHARS_MAX: Final = 64
"""The longest name of a tenant: Temporal's own limit for fairness keys."""

QUEUE_MAX: Final = 100
"""The most messages of one session that no snapshot holds yet, those sent to its execution included.

Further ones are refused until there is room. It bounds the session's history, too: a session continues as new only
after an execution, and Temporal warns at 10,240 events and takes 2,000 updates in one run.
"""

LISTED_MAX: Final = 1_000
"""The most runs, sessions, records or calls in one listing: each line may take a request of its own."""

SUBAGENTS_AT_ONCE_MAX: Final = 32
"""The most subagents that one step of an execution starts, all of which can run at once; the model sees refusals."""

SUMMARY_LINE_CHARS_MAX: Final = 80
"""The longest line that Temporal's UI shows beside an activity, a timer or a child: there is no room for more."""

DETAILS_BYTES_MAX: Final = 16 * 1024
"""The largest current details of a run or a session, in UTF-8 bytes of Markdown.

Temporal's UI renders them by a request with the whole text in its URL: proxies in front of it must accept that.
"""

DETAILS_STEPS_MAX: Final = 15
"""How many of the latest steps have rows of their own there; earlier ones share a row."""

DETAILS_LISTED_MAX: Final = 8
"""The most calls of one step, messages, subagents, errors or warnings listed there; the rest is counted."""

DETAILS_ANSWER_CHARS_MAX: Final = 1_000
"""How much of the answer is shown there."""

DETAILS_WORDS_CHARS_MAX: Final = 120
"""How much of an error, a reason or a message is shown there."""

CODEC_TOKEN_CHARS_MIN: Final = 16
"""The shortest token of the codec server."""

CODEC_TOKEN_CHARS_MAX: Final = 256
"""The longest token of the codec server."""

LIVE_TEXT_CHARS_MAX: Final = 4_000
"""How much of the end of a streaming answer a live view holds: more than a screen shows."""

TOP_ROWS: Final = 100
"""How many runs and sessions `holdfast top` lists unless it is told otherwise; LISTED_MAX is the most."""

LISTENER_EVENTS_MAX: Final = 10_000
"""How many events a coroutine listener may lag behind; it misses further ones, the run does not wait for it."""

LISTENER_SECONDS_MAX: Final = 5.0
"""How long the end of an execution waits for its coroutine listeners to catch up."""

SINK_BATCH_EVENTS_MAX: Final = 100
"""The most events that a sink takes at once."""

SINK_BATCH_BYTES_MAX: Final = 1024 * 1024
"""The most they take together, in bytes of JSON; one event that is larger goes alone."""

SINK_FOLLOWED_MAX: Final = 500
"""How many executions one sink follows at the same time, each by a long poll; others wait for their turn."""

SINK_TRIES_MAX: Final = 30
"""How often a batch is sent to a sink that fails other than by being unreachable: some twenty minutes."""

SINK_REFUSALS_MAX: Final = 3
"""How often one event is sent to a sink that refuses it."""

SPAN_TEXT_CHARS_MAX: Final = 8_000
"""The longest text of a message, a call's arguments or its result in a span, in characters."""
