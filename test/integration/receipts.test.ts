import { rmSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { verifyReceipt, type ReceiptVerdict } from '../../src/cli/verify.ts';
import { importMethods } from '../../src/datasets/dataset.ts';
import { platforms, type Platform } from '../../src/datasets/field-schema.ts';
import { parseImportRequest } from '../../src/ingest/import-request.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../src/admin/erase/erase.ts';
import { signGroup, createReceiptStatement, type Receipt } from '../../src/receipts/receipt.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { testFolder } from '../helpers/folder.ts';
import { bodyOf, readImportCases } from '../helpers/import-cases.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { startTestCompact, type TestCompactOptions } from '../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../helpers/memory-stream.ts';
import { newReceiptKey } from '../helpers/receipts.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(3));

const key = newReceiptKey();

interface Sent {
  readonly receipt: Receipt;
  readonly lines: Buffer;
  readonly body: Buffer;
}

interface Sending {
  readonly platform?: Platform;
  readonly headers?: Readonly<Record<string, string>>;
  readonly receivedAtMs?: number;
  /** Publishes other lines than those of the receipt. */
  readonly change?: (lines: string) => string;
}

/** Accepts a request as import does, without HTTP; undefined if it is rejected. */
async function send(
  stream: MemoryStream,
  method: string,
  given: Buffer | object,
  { platform = 'web', headers = {}, receivedAtMs = Date.now(), change = (lines) => lines }: Sending = {},
): Promise<Sent | undefined> {
  const body = Buffer.isBuffer(given) ? given : Buffer.from(JSON.stringify(given));
  const app = { idApp: 1 + platforms.indexOf(platform), platform };
  const imported = parseImportRequest({ method, head: { headers, headersDistinct: {} }, body, app, receivedAtMs });
  if ('reason' in imported) return undefined;
  const { lines } = imported;
  const receiptStatement = createReceiptStatement({ ...app, method, receivedAtMs, lines });
  const sequence = stream.publishRaw(change(lines.toString()));
  const { id } = await stream.state();
  const [receipt] = signGroup([receiptStatement], { stream: id, sequence, storedAt: new Date().toISOString() }, key);
  return receipt === undefined ? undefined : { receipt, lines, body };
}

async function compactUntilRead(folder: string, stream: MemoryStream, options: TestCompactOptions = {}): Promise<void> {
  const compactor = await startTestCompact(folder, stream, options);
  const { table } = lakePaths(path.join(folder, 'lake'));
  const { lastSequence } = await stream.state();
  await waitFor(
    'the stream is read',
    async () => ((await readSnapshot(table)).lake?.epoch?.position ?? 0) >= lastSequence,
    60_000,
  );
  await compactor.stop();
}

function verify(folder: string, { receipt }: Sent): Promise<ReceiptVerdict> {
  const lake = path.join(folder, 'lake');
  return verifyReceipt(JSON.stringify(receipt), { key: key.key, body: undefined, data: undefined, lake }, {});
}

function verifyBody({ receipt }: Sent, body: Buffer): Promise<ReceiptVerdict> {
  return verifyReceipt(JSON.stringify(receipt), { key: undefined, body, data: undefined, lake: undefined }, {});
}

const statesOf = ({ lake }: ReceiptVerdict): (string | undefined)[] => lake?.events.map(({ state }) => state) ?? [];

/** The accepted requests of the import fixtures, and one receipt of all lines per app and method. */
async function sendFixtures(stream: MemoryStream) {
  const receivedAtMs = Date.now();
  const bodies: Sent[] = [];
  const lines = new Map<string, Buffer[]>();
  for (const { app: platform = 'web', method = 'login', ...one } of readImportCases().flatMap(([, cases]) => cases)) {
    if (one.status !== 200 || one.headers !== undefined || !importMethods.has(method)) continue;
    const taken = await send(stream, method, bodyOf(one), { platform, receivedAtMs });
    if (taken === undefined) continue;
    bodies.push(taken);
    const place = `${platform} ${method}`;
    lines.set(place, [...(lines.get(place) ?? []), taken.lines]);
  }
  const together = [...lines].map(([place, those]): Sent => {
    const [platform = '', method = ''] = place.split(' ');
    const app = { platform: platform as Platform, idApp: 1 + platforms.indexOf(platform as Platform) };
    const receiptStatement = createReceiptStatement({ ...app, method, receivedAtMs, lines: Buffer.concat(those) });
    const where = { stream: 'TEST@1', sequence: 1, storedAt: new Date().toISOString() };
    return {
      receipt: signGroup([receiptStatement], where, key)[0]!,
      lines: Buffer.concat(those),
      body: Buffer.alloc(0),
    };
  });
  return { bodies, together };
}

test('Every accepted request is stored as rows with exactly the values of its receipt', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const { bodies, together } = await sendFixtures(stream);
  expect(bodies.length).toBeGreaterThan(150);
  for (const sent of bodies)
    expect((await verifyBody(sent, sent.body)).body, sent.body.toString()).toEqual({ ok: true });
  await compactUntilRead(folder, stream);
  const stored = new Set<string>();
  const others: { readonly eventId: string; readonly state: string }[] = [];
  for (const sent of together)
    for (const event of (await verify(folder, sent)).lake?.events ?? [])
      if (event.state === 'stored') stored.add(event.eventId);
      else others.push(event);
  // Only a transaction of an earlier fixture is a repeat.
  expect(others.filter(({ eventId, state }) => state !== 'repeat' || !stored.has(eventId))).toEqual([]);
  expect(new Set(together.flatMap(({ receipt }) => receipt.events.map(({ eventId }) => eventId)))).toEqual(stored);
}, 120_000);

test('A receipt names the version that has its events, the same before and after they are sealed', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const { table } = lakePaths(path.join(folder, 'lake'));
  const sent: { readonly one: Sent; readonly version: number }[] = [];
  for (let n = 0; n < 6; n += 1) {
    const before = (await readSnapshot(table)).version;
    const one = await send(stream, 'loginBatch', [{ customUserId: `u${n}` }, { customUserId: `v${n}` }]);
    await compactUntilRead(folder, stream);
    const { events = [] } = (await verify(folder, one!)).lake ?? {};
    const [version = 0] = new Set(events.map(({ sinceVersion }) => sinceVersion ?? 0));
    expect(events.map(({ sinceVersion, state }) => [sinceVersion, state])).toEqual([
      [version, 'stored'],
      [version, 'stored'],
    ]);
    expect(version).toBeGreaterThan(before);
    sent.push({ one: one!, version });
  }
  expect(new Set(sent.map(({ version }) => version)).size).toBe(6);
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10, retentionMs: 0 });
  await waitFor('sealed', async () => (await readSnapshot(table)).young.length === 0, 60_000);
  await sealer.stop();
  for (const { one, version } of sent)
    for (const event of (await verify(folder, one)).lake?.events ?? [])
      expect(event).toMatchObject({ state: 'stored', sinceVersion: version });
}, 120_000);

test('A retry under its key is a repeat of the stored events, and so is a transaction that is sent again', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const headers = { 'idempotency-key': 'k' };
  const batch = [{ customUserId: 'u' }, { customUserId: 'v', eventTimestamp: 1_700_000_000 }];
  const nowMs = Date.now();
  const first = await send(stream, 'loginBatch', batch, { headers, receivedAtMs: nowMs - 90_000 });
  const again = await send(stream, 'loginBatch', batch, { headers, receivedAtMs: nowMs });
  const other = await send(stream, 'loginBatch', [{ customUserId: 'w' }], { headers, receivedAtMs: nowMs });
  const paid = { customUserId: 'u', idTransaction: 't', total: 12.5, currency: 'EUR' };
  const payment = await send(stream, 'customRevenue', paid, { receivedAtMs: nowMs - 5000 });
  const twice = await send(stream, 'customRevenue', { ...paid, total: '12.50' });
  const dearer = await send(stream, 'customRevenue', { ...paid, total: 13 });
  await (await startTestCompact(folder, createMemoryStream())).stop();
  const waiting = await verify(folder, first!);
  expect([waiting.ok, ...statesOf(waiting)]).toEqual([true, 'pending', 'pending']);
  await compactUntilRead(folder, stream);
  expect(statesOf(await verify(folder, first!))).toEqual(['stored', 'stored']);
  expect(statesOf(await verify(folder, again!))).toEqual(['repeat', 'repeat']);
  const failed = await verify(folder, other!);
  expect([failed.ok, failed.lake?.events]).toMatchObject([false, [{ state: 'failed', reason: 'key_reused' }]]);
  expect(statesOf(await verify(folder, payment!))).toEqual(['stored']);
  const [same] = (await verify(folder, twice!)).lake?.events ?? [];
  expect(same).toMatchObject({ state: 'repeat' });
  expect(same?.reason).toBeUndefined();
  const [differs] = (await verify(folder, dearer!)).lake?.events ?? [];
  expect(differs).toMatchObject({ state: 'repeat', reason: expect.stringContaining('has other values') });
  const late = await send(stream, 'login', { customUserId: 'u' });
  expect(statesOf(await verify(folder, late!))).toEqual(['pending']);
}, 60_000);

test('Events that are not in the lake are distinguished: erased, missing, changed, or of another stream', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const kept = await send(stream, 'login', { customUserId: 'kept' });
  const lost = await send(stream, 'login', { customUserId: 'lost' }, { change: () => '\n' });
  const forged = await send(
    stream,
    'login',
    { customUserId: 'real' },
    { change: (lines) => lines.replace('real', 'fake') },
  );
  const gone = await send(stream, 'loginBatch', [{ customUserId: 'forgotten' }, { customUserId: 'stays' }]);
  await compactUntilRead(folder, stream);
  const missing = await verify(folder, lost!);
  expect([missing.ok, ...statesOf(missing)]).toEqual([false, 'missing']);
  expect(missing.lake?.events[0]?.reason).toContain('nothing was erased');
  const changed = await verify(folder, forged!);
  expect([changed.ok, ...statesOf(changed)]).toEqual([false, 'changed']);

  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const lakeDir = path.join(folder, 'lake');
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  const table = await openTable(lakePaths(lakeDir).table, { clock: createClock(0), crashPoint: noCrashPoint });
  const { signal } = new AbortController();
  await eraseEvents(
    { table, lakeDir, duckdb, publisher: stream.publisher, clock: createClock(0), crashPoint: noCrashPoint, signal },
    { users: ['forgotten'] },
    { retentionMs: 0, now: true },
  );
  duckdb.close();
  const erased = await verify(folder, gone!);
  expect([erased.ok, ...statesOf(erased)]).toEqual([true, 'erased', 'stored']);
  expect(statesOf(await verify(folder, kept!))).toEqual(['stored']);
  const stillMissing = await verify(folder, lost!);
  expect([stillMissing.ok, ...statesOf(stillMissing)]).toEqual([false, 'missing']);
  expect(stillMissing.lake?.events[0]?.reason).toContain('not among those that were erased');
  const { receipt } = lost!;
  const elsewhere = signGroup([receipt], { ...receipt.group, stream: 'TEST@0' }, key)[0]!;
  const replaced = await verify(folder, { ...lost!, receipt: elsewhere });
  expect(replaced.lake?.events).toMatchObject([
    { state: 'missing', reason: expect.stringContaining('another stream') },
  ]);
  rmSync(lakePaths(lakeDir).erasedIds);
  const untold = await verify(folder, lost!);
  expect([untold.ok, ...statesOf(untold)]).toEqual([true, 'erased']);
  expect(untold.lake?.events[0]?.reason).toContain('1 events were erased from the table, and their ids are unknown');
}, 60_000);

test('A folder that is not a lake, or has lost its log, is an error', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const sent = await send(stream, 'login', { customUserId: 'u' });
  await compactUntilRead(folder, stream);
  expect(statesOf(await verify(folder, sent!))).toEqual(['stored']);
  const lake = path.join(folder, 'lake');
  for (const other of [folder, path.join(lake, 'events')])
    await expect(
      verifyReceipt(JSON.stringify(sent!.receipt), { key: key.key, body: undefined, data: undefined, lake: other }, {}),
    ).rejects.toMatchObject({ code: 'not_found', message: `no lake found in ${other}` });
  rmSync(path.join(lake, 'events', '_delta_log'), { recursive: true });
  await expect(verify(folder, sent!)).rejects.toMatchObject({ code: 'not_found' });
}, 60_000);

test('After a restore, events that are newer than the backup are missing, not pending', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const kept = await send(stream, 'login', { customUserId: 'kept' });
  await compactUntilRead(folder, stream);
  const late = await send(stream, 'login', { customUserId: 'late' });
  const waiting = await verify(folder, late!);
  expect([waiting.ok, ...statesOf(waiting)]).toEqual([true, 'pending']);
  const { table: tableDir } = lakePaths(path.join(folder, 'lake'));
  const table = await openTable(tableDir, { clock: createClock(0), crashPoint: noCrashPoint });
  const restoredFrom = '2026-01-02T03:04:05.000Z';
  await table.commit(() => ({ cause: 'restore', actions: [], restoredFrom, metrics: { backupOf: restoredFrom } }));
  const lost = await verify(folder, late!);
  expect([lost.ok, ...statesOf(lost)]).toEqual([false, 'missing']);
  expect(lost.lake?.events[0]?.reason).toContain(`restored from the backup of ${restoredFrom}`);
  expect(statesOf(await verify(folder, kept!))).toEqual(['stored']);
}, 60_000);

test('A body matches a receipt only if it has the same events in the same order', async () => {
  const batch = [{ customUserId: 'u', age: 30 }, { customUserId: 'v' }];
  const sent = (await send(createMemoryStream(), 'loginBatch', batch))!;
  const judge = async (body: string | Buffer): Promise<unknown> => (await verifyBody(sent, Buffer.from(body))).body?.ok;
  expect(await judge(JSON.stringify(batch))).toBe(true);
  expect(await judge(gzipSync(JSON.stringify(batch)))).toBe(true);
  expect(await judge(gzipSync('[]'))).toBe(false);
  expect(await judge('[{"age":"30", "customUserId":"u","unknown":1},{"customUserId":"v"}]')).toBe(true);
  const others = [[{ customUserId: 'u' }, { customUserId: 'v' }], batch.toReversed(), batch.slice(0, 1)];
  for (const other of [...others.map((value) => JSON.stringify(value)), '{', ''])
    expect(await judge(other)).toBe(false);
});
