from django.db import migrations, models

# The index holds no text of its own (content=): it reads titles and excerpts from the documents. Triggers keep it in
# step, inside the statement that changes a document: no code can forget it, and no crash comes between the two.
# A later migration that alters Document must create the triggers again: to alter a table on SQLite, Django builds a new
# one and drops the old, its triggers with it.
CREATE = [
    """
    CREATE VIRTUAL TABLE library_fulltext
    USING fts5(path, text, content='library_document', content_rowid='id', tokenize='porter unicode61')
    """,
    # A word in the path counts ten times as much as one in the text.
    "INSERT INTO library_fulltext(library_fulltext, rank) VALUES ('rank', 'bm25(10.0, 1.0)')",
    """
    CREATE TRIGGER library_fulltext_insert AFTER INSERT ON library_document BEGIN
        INSERT INTO library_fulltext(rowid, path, text) VALUES (new.id, new.path, new.text);
    END
    """,
    """
    CREATE TRIGGER library_fulltext_delete AFTER DELETE ON library_document BEGIN
        INSERT INTO library_fulltext(library_fulltext, rowid, path, text) VALUES ('delete', old.id, old.path, old.text);
    END
    """,
    """
    CREATE TRIGGER library_fulltext_update AFTER UPDATE ON library_document BEGIN
        INSERT INTO library_fulltext(library_fulltext, rowid, path, text) VALUES ('delete', old.id, old.path, old.text);
        INSERT INTO library_fulltext(rowid, path, text) VALUES (new.id, new.path, new.text);
    END
    """,
]
DROP = [
    "DROP TRIGGER library_fulltext_insert",
    "DROP TRIGGER library_fulltext_delete",
    "DROP TRIGGER library_fulltext_update",
    "DROP TABLE library_fulltext",
]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Document",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.TextField(unique=True)),
                ("lines", models.PositiveIntegerField()),
                ("indexed_at", models.DateTimeField(db_index=True)),
                ("text", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="Digest",
            fields=[
                ("job_id", models.UUIDField(primary_key=True, serialize=False)),
                ("written_at", models.DateTimeField(auto_now=True)),
                ("documents", models.PositiveIntegerField()),
                ("lines", models.PositiveIntegerField()),
                ("newest", models.JSONField(help_text="Paths of the documents indexed last.")),
            ],
            options={"ordering": ["-written_at"]},
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
