"""The message that shows the model the pictures of its tools' results, as references into the record store."""

from __future__ import annotations

from holdfast.core.base.frozen import trusted
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import Message, StoredImagePart, TextPart


def picture_message(pictures: tuple[Attachment, ...]) -> Message:
    """Return the message behind the results; it is a user's, because APIs take pictures from nobody else."""
    names = ", ".join(each.name for each in pictures)
    parts = (trusted(StoredImagePart, attachment=each) for each in pictures)
    head = trusted(TextPart, text=f"[the pictures of the results above, in this order: {names}]")
    return trusted(Message, role="user", content=(head, *parts))
