"""What vendors refuse of files in a request: data that is no base64, or not of the type that it says. Holds no I/O."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from holdfast.core.conversation.attachments import PDF_TYPE
from holdfast.runtime.files.file_types import marked_type

DATA_URL: Final = f"data:{PDF_TYPE};base64,"

FILE_BYTES_MAX: Final = 32_000_000
"""The largest file: Anthropic takes requests of 32 MB, OpenAI files of 50 MB."""


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("Invalid base64 data") from None
    if not 0 < len(data) <= FILE_BYTES_MAX:
        raise ValueError(f"the file has {len(data):,} bytes; 1 to {FILE_BYTES_MAX:,} are allowed")
    return data


def checked_pdf(text: str) -> str:
    """Return the base64 of a PDF. Raises ValueError for any other."""
    if marked_type(_decoded(text)) != PDF_TYPE:
        raise ValueError("The PDF specified was not valid.")
    return text


def checked_pdf_address(text: str) -> str:
    """Return the data address of a PDF. Raises ValueError for any other."""
    if not text.startswith(DATA_URL):
        raise ValueError(f"Expected a file with the supported MIME type '{PDF_TYPE}' as '{DATA_URL}...'")
    checked_pdf(text.removeprefix(DATA_URL))
    return text


PdfData = Annotated[str, AfterValidator(checked_pdf)]
PdfAddress = Annotated[str, AfterValidator(checked_pdf_address)]
PdfName = Annotated[str, Field(pattern=r"(?i)^.+\.pdf$", max_length=255)]


class InputAudio(BaseModel):
    """A sound as chat completions take it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    data: str
    format: Literal["wav", "mp3"]

    @model_validator(mode="after")
    def _is_of_its_format(self) -> Self:
        if marked_type(_decoded(self.data)) != {"wav": "audio/wav", "mp3": "audio/mpeg"}[self.format]:
            raise ValueError("The audio data you provided could not be decoded or has an unsupported format.")
        return self


class InputFile(BaseModel):
    """A file as chat completions take it: here, not by an id of one that was stored there before."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    filename: PdfName
    file_data: PdfAddress
