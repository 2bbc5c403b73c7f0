import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { openDuckdb, sqlText, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8');
const chapter = readme.slice(readme.indexOf('\n## The lake for data engineers'), readme.indexOf('\n## Settings'));
const queries = (/```sql\n([\s\S]*?)```/.exec(chapter)?.[1] ?? '').split(/\n(?=-- \d+\. )/).map((text) => text.trim());

const folder = temporaryFolder();
let duckdb: Duckdb;

beforeAll(async () => {
  const stream = createMemoryStream();
  const compact = await startTestCompact(folder, stream);
  const sessions = [...generateGameSessions({ seed: 7, events: 3000, until: 1_714_600_000, days: 3 })];
  stream.publish([
    eventLine({ kind: 'registration' }),
    eventLine({ kind: 'login' }),
    ...sessions.map((event) =>
      eventLine({ kind: 'custom_event', event_time: event.eventTimestamp, custom_user_id: event.customUserId, custom_event_name: event.customEventName, custom_event_params: event.customEventParams }),
    ),
  ]);
  await waitFor('the lake has the events', async () => (await readRows(folder, 'event_id')).length === sessions.length + 2);
  await compact.stop();
  duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  await duckdb.run(readFileSync(path.join(folder, 'lake', 'snapshot.sql'), 'utf8'));
});

afterAll(() => duckdb.close());

describe("the README's chapter on the lake", () => {
  it('has ten queries', () => {
    expect(queries).toHaveLength(10);
  });

  it.each(queries.map((sql) => [sql.split('\n')[0] ?? '', sql]))('answers: %s', async (_title, sql) => {
    const rows = await duckdb.rows(sql.replace("'day.parquet'", sqlText(path.join(folder, 'day.parquet'))));
    expect(rows.length).toBeGreaterThan(0);
    // A COPY answers with the number of rows it wrote.
    expect(Object.values(rows[0] ?? {})).not.toEqual([0n]);
  });

  it('lists every column with its type and its field', () => {
    const listed = [...chapter.matchAll(/^\| `(\w+)` \| ([^|]+) \| ([^|]*) \| (?:`(\w+)`: )?([^|]+) \|$/gm)].map(([, name, type, unit, field, description]) => ({
      name, type, description, ...(unit?.trim() ? { unit: unit.trim() } : {}), ...(field === undefined ? {} : { field }),
    }));
    expect(listed).toEqual(eventColumns);
  });
});
