"""The message that shows the model the files of its tools' results, as references into the record store."""

from __future__ import annotations

from holdfast.core.base.frozen import trusted
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import Message, Part, StoredFilePart, StoredImagePart, TextPart


def results_message(pictures: tuple[Attachment, ...], files: tuple[Attachment, ...]) -> Message:
    """Return the message behind the results; it is a user's, because APIs take pictures and files from nobody else."""
    parts: list[Part] = []
    if pictures:
        parts.append(_head("pictures", pictures))
        parts += (trusted(StoredImagePart, attachment=each) for each in pictures)
    if files:
        parts.append(_head("files", files))
        parts += (trusted(StoredFilePart, attachment=each, of_result=True) for each in files)
    return trusted(Message, role="user", content=tuple(parts))


def _head(what: str, files: tuple[Attachment, ...]) -> TextPart:
    names = ", ".join(each.name for each in files)
    return trusted(TextPart, text=f"[the {what} of the results above, in this order: {names}]")
