from django.contrib import admin

from .models import Digest, Document


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    list_display = ["__str__", "lines", "indexed_at"]
    search_fields = ["path"]

    def get_queryset(self, request):
        """Leave the texts in the database: a list of a hundred documents would read them all."""
        return super().get_queryset(request).defer("text")


@admin.register(Digest)
class DigestAdmin(admin.ModelAdmin):
    list_display = ["written_at", "documents", "lines"]
