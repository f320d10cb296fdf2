/**
 * The steps from an empty file to today's schema; a file's `user_version` says how many it has seen. Forward only: a step that was
 * released is never changed.
 *
 * SQLite compares text by its UTF-8 octets. `counter` holds the last version and event number given out, so that neither is used
 * twice after a delete.
 */
export const MIGRATIONS: readonly string[] = [
  `CREATE TABLE record (
     key TEXT PRIMARY KEY NOT NULL,
     version INTEGER NOT NULL,
     value BLOB NOT NULL,
     queue TEXT,
     due INTEGER,
     CHECK ((queue IS NULL) = (due IS NULL))
   ) STRICT;
   CREATE INDEX record_due ON record (queue, due) WHERE queue IS NOT NULL;
   CREATE TABLE event (number INTEGER PRIMARY KEY NOT NULL, time INTEGER NOT NULL, value BLOB NOT NULL) STRICT;
   CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, event INTEGER NOT NULL) STRICT;
   INSERT INTO counter VALUES (1, 0, 0);`,
]
