from datetime import timedelta

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.template.defaultfilters import filesizeformat

MAX_UPLOAD_BYTES = 1_000_000


def validate_size(file: UploadedFile) -> None:
    if file.size > MAX_UPLOAD_BYTES:
        raise ValidationError(f"The file has {filesizeformat(file.size)}, {filesizeformat(MAX_UPLOAD_BYTES)} at most.")


class UploadForm(forms.Form):
    file = forms.FileField(label="A text file", allow_empty_file=True, validators=[validate_size])


class DigestForm(forms.Form):
    delay = forms.TypedChoiceField(
        label="When",
        choices=[(10, "in 10 seconds"), (60, "in a minute"), (3600, "in an hour"), (86400, "tomorrow")],
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
    )
