"""The pages of the site."""

from django.contrib import messages
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from django_vtqueue.models import DeadLetter, Job

from .forms import DigestForm, UploadForm
from .models import Digest, Document
from .search import find
from .tasks import digest, index_file


@require_GET
def search(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "")
    return render(request, "library/search.html", {"query": query, "hits": find(query), **status()})


@require_GET
def document(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "library/document.html", {"document": get_object_or_404(Document, pk=pk)})


@require_POST
def upload(request: HttpRequest) -> HttpResponse:
    form = UploadForm(request.POST, request.FILES)
    if not form.is_valid():
        return render(request, "library/search.html", {**status(), "upload_form": form}, status=422)
    save_upload(form.cleaned_data["file"])
    messages.success(request, "Your file is next in the queue; it can be found as soon as a worker has read it.")
    return redirect("search")


def digests(request: HttpRequest) -> HttpResponse:
    form = DigestForm(request.POST or None)
    if form.is_valid():
        digest.using(run_after=form.cleaned_data["delay"]).enqueue()
        return redirect("digests")
    scheduled = Job.objects.filter(queue_name="digests", finished_at=None).order_by("visible_at")
    context = {"digests": Digest.objects.all()[:20], "scheduled": scheduled, "digest_form": form}
    return render(request, "library/digests.html", context)


def save_upload(file: UploadedFile) -> str:
    """Keep a user's file and have it indexed before all others, for somebody waits; return the task result's id."""
    path = default_storage.path(default_storage.save(f"uploads/{file.name}", file))
    return index_file.using(priority=100).enqueue(path).id


def status() -> dict[str, object]:
    """How far the indexing is, and the form below it: what the search page shows besides the hits."""
    return {
        "documents": Document.objects.count(),
        "waiting": Job.objects.filter(queue_name="index", finished_at=None).count(),
        "dead": DeadLetter.objects.filter(queue_name="index").count(),
        "upload_form": UploadForm(),
    }
