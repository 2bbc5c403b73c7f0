import { randomUUID } from 'node:crypto';
import { rmSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFailedList } from '../../../src/lake/files/failed-events.ts';
import { createFailedIndex } from '../../../src/lake/event-index/failed-index.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine } from '../../helpers/lake.ts';

const hourAgo = Date.now() / 1000 - 3600;
const { signal } = new AbortController();

/** Writes a file of one failed event. Returns its name and the event's id. */
function writeFailed(folder: string): { readonly name: string; readonly eventId: string } {
  const line = eventLine();
  const name = `${randomUUID()}.ndjson`;
  const event = { reason: 'key_reused', failedAt: '2026-01-01T00:00:00.000Z', line: JSON.stringify(line) };
  writeFileSync(path.join(folder, name), `${JSON.stringify(event)}\n`);
  return { name, eventId: String(line['event_id']) };
}

describe('the files of failed events', () => {
  it('A folder that has not changed for a while is not listed again, and each change is detected', async () => {
    const folder = testFolder();
    const list = createFailedList(folder, folder);
    const { name } = writeFailed(folder);
    const first = await list();
    expect([...first]).toEqual([[name, path.join(folder, name)]]);
    // A folder that has just changed may change again at the same time.
    expect(await list()).not.toBe(first);
    utimesSync(folder, hourAgo, hourAgo);
    const known = await list();
    expect(await list()).toBe(known);
    const second = writeFailed(folder);
    expect([...(await list()).keys()].toSorted()).toEqual([name, second.name].toSorted());
    utimesSync(folder, hourAgo, hourAgo);
    await list();
    rmSync(path.join(folder, name));
    expect([...(await list()).keys()]).toEqual([second.name]);
  });

  it('A file without a commit is checked each time, even if the folder has not changed', async () => {
    const folder = testFolder();
    const list = createFailedList(folder, folder);
    writeFileSync(path.join(folder, `pending-0-${randomUUID()}.ndjson`), '');
    utimesSync(folder, hourAgo, hourAgo);
    const first = await list();
    expect(first.size).toBe(0);
    expect(await list()).not.toBe(first);
    expect((await createFailedList(path.join(folder, 'none'), folder)()).size).toBe(0);
  });

  it('A lookup reads few unread files, and leaves many of them to maintenance', async () => {
    const folder = testFolder();
    const index = createFailedIndex(folder, folder, 2);
    const find = async (eventId: string): Promise<unknown> =>
      (await index.find({ eventId, idApp: 1 }, [1], performance.now() + 10_000)).map((found) => found.eventId);
    const many = [...Array(5).keys()].map(() => writeFailed(folder));
    const [first = { name: '', eventId: '' }] = many;
    await expect(find(first.eventId)).rejects.toMatchObject({ code: 'overloaded' });
    await index.readOn(signal);
    for (const { eventId } of many) expect(await find(eventId)).toEqual([eventId]);
    const { eventId } = writeFailed(folder);
    expect(await find(eventId)).toEqual([eventId]);
    rmSync(path.join(folder, first.name));
    expect(await find(first.eventId)).toEqual([]);
    utimesSync(folder, hourAgo, hourAgo);
    for (let looks = 0; looks < 2; looks += 1) expect(await find(eventId)).toEqual([eventId]);
  });

  it("A lookup of another app's event, or of any app's, reads only files of the requested apps", async () => {
    const folder = testFolder();
    const index = createFailedIndex(folder, folder);
    const line = eventLine();
    const { kind, event_id: eventId, ...rest } = line;
    for (const [name, text] of [
      [`${randomUUID()}.ndjson`, JSON.stringify(line)],
      [`${randomUUID()}.ndjson`, JSON.stringify({ event_id: eventId, ...rest, kind })],
    ] as const)
      writeFileSync(path.join(folder, name), `${JSON.stringify({ reason: 'bad_value', failedAt: '', line: text })}\n`);
    const find = async (idApp: number | undefined, idApps: readonly number[]): Promise<number> =>
      (await index.find({ eventId: String(eventId), idApp }, idApps, performance.now() + 10_000)).length;
    expect([await find(1, [1]), await find(undefined, [2, 1]), await find(2, [2])]).toEqual([2, 2, 0]);
    const findEach = async (idApp: number): Promise<number> =>
      (await index.findEach([{ eventId: String(eventId) }], idApp, performance.now() + 10_000)).length;
    expect([await findEach(1), await findEach(2)]).toEqual([2, 0]);
    const other = writeFailed(folder);
    await index.find({ eventId: other.eventId, idApp: 1 }, [1], performance.now() + 10_000);
    writeFileSync(path.join(folder, other.name), 'not what was there');
    const foreign = { eventId: other.eventId, idApp: 2 };
    expect(await index.find(foreign, [2], performance.now() + 10_000)).toEqual([]);
    await expect(index.find({ ...foreign, idApp: 1 }, [1], performance.now() + 10_000)).rejects.toMatchObject({
      code: 'file_damaged',
    });
  });
});
