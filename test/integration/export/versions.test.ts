import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { CommandContext } from '../../../src/cli/command.ts';
import { readChanges } from '../../../src/cli/lake.ts';
import { verifyCommand } from '../../../src/cli/verify.ts';
import type { Compactor } from '../../../src/compact/wait-for-repair.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listLog } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import {
  createExportArea,
  send,
  targetOf,
  type AnswerData,
  type Credentials,
  type RunningArea,
} from '../../helpers/export-area.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

beforeEach(oneTestIn(2));

const create = '/api/raw/v1/export/create.json';
const hourMs = 3_600_000;
const retentionMs = 24 * hourMs;

/** Runs `tributary verify`; returns its exit code and output. */
async function verify(...words: string[]) {
  const answers: unknown[] = [];
  const notes: string[] = [];
  const context = {
    printResult: (value: unknown) => void answers.push(value),
    printMessage: (line: string) => void notes.push(line),
  } as unknown as CommandContext;
  return { code: await runCommandHere(verifyCommand, words, context), answer: answers[0], notes };
}

describe('versions of the data', () => {
  const area = createExportArea(temporaryFolder());
  const { table } = lakePaths(path.join(area.dataDir, 'lake'));
  const stream = createMemoryStream();
  // Long ago, so that nothing becomes available in the future when a test advances the clock.
  const clock = { now: Date.now() - 1000 * 24 * hourMs, nowMs: () => clock.now };
  const start = () =>
    startTestCompact(area.dataDir, stream, { clock, retentionMs, sealAgeMs: hourMs, checkpointEvery: 3 });
  let compactor: Compactor;
  let running: RunningArea;
  let user: Credentials;
  let sent = 0;

  beforeAll(async () => {
    await area.addApp({ idApp: 1, title: 'one', platform: 'web', idAccount: 1, sdkKey: 'sdk 1' });
    user = await area.addUser({});
    running = await area.start({ runAttempt: runHere, maxExports: 100, retentionMs });
    compactor = await start();
  });
  afterAll(async () => {
    await running.stop();
    await compactor.stop();
  });

  /** Stores an event of a user, a number of seconds late. */
  async function store(name: string, lateSeconds = 0): Promise<void> {
    const { totals } = (await readSnapshot(table)).lake ?? {};
    stream.publish([
      eventLine({
        kind: 'custom_event',
        custom_event_name: 'e',
        custom_user_id: name,
        event_time: Math.floor(clock.now / 1000) - lateSeconds,
        received_at: clock.now,
      }),
    ]);
    sent += 1;
    await waitFor('the event is stored', async () => {
      const { lake } = await readSnapshot(table);
      return (lake?.totals.stored ?? 0) > (totals?.stored ?? 0);
    });
    clock.now += 1000;
  }

  const all = 'event=customEvents&selectors=customUserId&tsFrom=0&tsTo=1';
  const everything = (): string => all.replace('tsTo=1', `tsTo=${Math.floor(Date.now() / 1000)}`);

  async function order(
    parameters: string,
  ): Promise<{ readonly data: AnswerData & Record<string, unknown>; readonly text: string }> {
    const id = await running.create(user, parameters);
    const data = await running.waitForEnd(user, id);
    const text = data.status === 'Success!' ? (await running.download(user, id)).join('') : '';
    return { data: data as AnswerData & Record<string, unknown>, text };
  }

  async function since(place: unknown): Promise<{ readonly names: string[]; readonly next: unknown }> {
    const { data, text } = await order(`event=customEvents&selectors=customUserId&sinceVersion=${String(place)}`);
    expect(data.status).toBe('Success!');
    return { names: text.trim().split('\n').slice(1).toSorted(), next: data['nextSinceVersion'] };
  }

  async function seal(): Promise<void> {
    clock.now += 30 * hourMs;
    await waitFor('all rows are sealed', async () => (await readSnapshot(table)).young.length === 0);
  }

  async function refusal(parameters: string): Promise<string> {
    const answer = await running.call(user, `${create}?${parameters}`, { method: 'POST' });
    expect(answer.status).toBe(400);
    return String(answer.json?.data?.error?.detail);
  }

  it('Each finished export names the version that it was read from, and the next export has the new rows once', async () => {
    await store('a');
    const first = await order(everything());
    expect(first.text).toBe('customUserId\na\n');
    expect(first.data['version']).toMatch(/^\d+$/);
    expect(first.data['nextSinceVersion']).toMatch(new RegExp(`^${String(first.data['version'])}-[0-9a-f]{8}$`));
    expect(Number(first.data['timestampKeptUntil'])).toBeGreaterThan(Date.now() / 1000 + 23 * 3600);

    // All stored rows are older than now, and in the lake.
    expect(first.data['timestampWatermark']).toMatch(/^\d{10}$/);
    const none = await since(first.data['nextSinceVersion']);
    expect(none.names).toEqual([]);
    await store('b');
    await store('c', 400 * 86_400);
    const two = await since(none.next);
    expect(two.names).toEqual(['b', 'c']);
    expect((await since(0)).names).toEqual(['a', 'b', 'c']);

    await seal();
    await store('d');
    expect((await since(two.next)).names).toEqual(['d']);
    // Also by its number alone.
    expect((await since(first.data['version'])).names).toEqual(['b', 'c', 'd']);
  });

  it('A cursor is valid after its log is trimmed, and the command returns the same rows as the export', async () => {
    const { data } = await order(everything());
    const place = String(data['nextSinceVersion']);
    for (const name of ['e', 'f', 'g', 'h']) await store(name);
    // The log is trimmed up to a checkpoint that is older than the retention.
    await waitFor(
      'there is a checkpoint after that version',
      async () => ((await listLog(table)).checkpoints.at(-1) ?? 0) > Number(data['version']),
    );
    clock.now += 2 * retentionMs;
    await store('i');
    await seal();
    // A start deletes files past their retention.
    await compactor.stop();
    compactor = await start();
    await waitFor(
      'the log of that version is trimmed',
      async () => ((await listLog(table)).commits[0] ?? 0) > Number(data['version']),
    );
    const after = await since(place);
    expect(after.names).toEqual(['e', 'f', 'g', 'h', 'i']);
    const changes = await readChanges(table, place);
    expect(changes).toMatchObject({
      rows: 5,
      next: after.next,
      watermark: expect.stringMatching(/^\d{4}-/) as unknown,
    });
    const rows = await query(changes.sql);
    expect(rows.map((row) => String(row['custom_user_id'])).toSorted()).toEqual(after.names);
    expect((await readChanges(table, undefined)).rows).toBe(sent);
    await expect(readChanges(table, '1-zz')).rejects.toMatchObject({ code: 'usage' });
    expect(await refusal(`${everything()}&asOf=${String(data['version'])}`)).toContain(
      'is no longer available; the oldest available version is',
    );
  });

  it('The same request as of a version returns the same bytes after imports and seals', async () => {
    await store('k');
    const parameters = everything();
    const { data, text } = await order(parameters);
    const asOf = `${parameters}&asOf=${String(data['nextSinceVersion'])}`;
    await store('l');
    expect((await order(asOf)).text).toBe(text);
    await seal();
    await store('m');
    const again = await order(asOf);
    expect(again.text).toBe(text);
    expect(again.data['version']).toBe(data['version']);
    expect(again.data.files?.[0]?.sha256).toBe(data.files?.[0]?.sha256);
    // Also by its number alone.
    expect((await order(`${parameters}&asOf=${String(data['version'])}`)).text).toBe(text);
    // Both: the rows between two versions.
    const between = await order(`${asOf}&sinceVersion=0`);
    expect(between.text.split('\n').toSorted()).toEqual(text.split('\n').toSorted());
  });

  it('The command alone verifies a file and its manifest, and names a file that differs', async () => {
    const { data, text } = await order(everything());
    const { manifest } = data as unknown as { readonly manifest: { readonly link: string } };
    const answer = await send(running.port, targetOf(manifest.link));
    expect(answer.status).toBe(200);
    const served = await send(running.port, '/manifest-key.json');
    const {
      data: { key },
    } = JSON.parse(served.body.toString('utf8')) as { readonly data: { readonly key: string } };
    const folder = testFolder();
    const [file, other, signed] = ['a.csv', 'b.csv', 'a.manifest.json'].map((name) => path.join(folder, name)) as [
      string,
      string,
      string,
    ];
    writeFileSync(file, text);
    writeFileSync(other, `${text} `);
    writeFileSync(signed, answer.body);
    expect(await verify(file, signed, '--key', key)).toMatchObject({
      code: 0,
      answer: {
        ok: true,
        trusted: true,
        missing: [],
        export: { event: 'customEvents', version: Number(data['version']) },
      },
      notes: [],
    });
    expect(await verify(file, other, signed)).toMatchObject({
      code: 1,
      answer: {
        ok: false,
        trusted: false,
        files: [{ ok: true }, { ok: false, why: 'it is not in the manifest' }],
      },
      notes: [expect.stringContaining('pass the public key of the service with --key')],
    });
    expect(await verify(other, signed, '--key', key)).toMatchObject({
      answer: { ok: false, trusted: true, missing: [expect.stringMatching(/\.csv$/)] },
      notes: [expect.stringContaining('files of the export are missing: ')],
    });
    await expect(verify(file, signed, '--key', '0'.repeat(64))).rejects.toMatchObject({ code: 'manifest_invalid' });
    await expect(verify(signed)).rejects.toMatchObject({ code: 'usage' });
    await expect(verify(path.join(folder, 'c'), signed)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('A version with erased rows is refused', async () => {
    await store('erased');
    const { data } = await order(everything());
    const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
    const options = { clock, crashPoint: noCrashPoint };
    const dependencies = {
      table: await openTable(table, options),
      lakeDir: path.join(area.dataDir, 'lake'),
      duckdb,
      ...options,
      publisher: stream.publisher,
      signal: new AbortController().signal,
    };
    await eraseEvents(dependencies, { users: ['erased'] }, { retentionMs });
    duckdb.close();
    expect(await refusal(`${everything()}&asOf=${String(data['version'])}`)).toContain('has rows that were erased');
    expect((await order(everything())).text).not.toContain('erased\n');
  });

  it.each([
    ['sinceVersion=x', 'Argument sinceVersion is invalid'],
    ['sinceVersion=999999', 'is later than the version that is read'],
    ['asOf=999999', 'does not exist yet; the newest is'],
    ['asOf=-1', 'Argument asOf is invalid'],
  ])('A version that is not available is refused: %s', async (parameters, detail) => {
    expect(await refusal(`${everything()}&${parameters}`)).toContain(detail);
  });

  it('Derived events cannot be exported since a version', async () => {
    const detail = await refusal('event=sessions&selectors=customUserId&sinceVersion=1');
    expect(detail).toContain('Argument sinceVersion is not allowed for event sessions');
  });

  it.each(['sinceVersion', 'asOf'])('A cursor of another history ends the export with the reason: %s', async (name) => {
    const { data } = await order(everything());
    const [version, mark = ''] = String(data['nextSinceVersion']).split('-');
    const other = `${version}-${mark.startsWith('0') ? '1' : '0'}${mark.slice(1)}`;
    const id = await running.create(user, `${everything()}&${name}=${other}`);
    expect((await running.waitForEnd(user, id)).status).toBe('Error occurred');
    const raw = await running.call(user, `/api/raw/v1/export/get.json?idRawExport=${id}`);
    expect(raw.json?.data).toMatchObject({
      status: 'User error occurred',
      errorMessage: expect.stringContaining(`${name}: version ${version} has changed: the lake was restored`),
    });
  });

  it.each(['availabilityTsFrom', 'availabilityTsTo'])(
    'An export since a cursor refuses %s, which would lose rows permanently',
    async (name) => {
      const detail = await refusal(`event=customEvents&selectors=customUserId&sinceVersion=0&${name}=1`);
      expect(detail).toContain(`Argument ${name} is invalid: sinceVersion already selects rows`);
    },
  );
});
