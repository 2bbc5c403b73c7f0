import path from 'node:path';
import process from 'node:process';

/**
 * A process that runs the compactor, one erasure, or one replay, on `folder`/lake until it is killed, stopped by
 * SIGTERM, or done: for tests that kill it at a named step. Arguments: the compiled sources, and a JSON of { folder,
 * url, crashAt, spool, enriches, erase, replay, options }. Prints `ready`; exits 3 when it is fenced.
 */
const [dist, json] = process.argv.slice(2);
const { folder, url, crashAt, spool, enriches, erase, replay, options } = JSON.parse(json);
const load = (file) => import(`${dist}/${file}`);
const { createCrashPoint } = await load('runtime/crash-point.js');
const { createLogger } = await load('runtime/logger.js');
const { createMetrics } = await load('runtime/metrics.js');
const { createClock } = await load('runtime/clock.js');
const { openConnection } = await load('stream/connection.js');

const logger = createLogger(process.env.TEST_LOG ?? 'silent');
const clock = createClock(0);
const crashPoint = createCrashPoint(crashAt);
const lakeDir = path.join(folder, 'lake');
const connection = await openConnection({ url, name: 'child', logger });

async function runErase() {
  const { eraseEvents } = await load('operate/erase/erase.js');
  const { openTable } = await load('lake/log/table.js');
  const { openDuckdb } = await load('lake/sql/duckdb.js');
  const { openPublisher } = await load('stream/publisher.js');
  const table = await openTable(path.join(lakeDir, 'events'), { clock, crashPoint });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await eraseEvents(
    {
      table,
      lakeDir,
      duckdb,
      publisher: openPublisher(connection),
      clock,
      crashPoint,
      signal: new AbortController().signal,
    },
    { users: [erase] },
    { retentionMs: 6000 },
  );
}

async function runReplay() {
  const { replayFailed } = await load('operate/replay.js');
  const { openTable } = await load('lake/log/table.js');
  const { openDuckdb } = await load('lake/sql/duckdb.js');
  const table = await openTable(path.join(lakeDir, 'events'), { clock, crashPoint });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await replayFailed({ table, lakeDir, duckdb, clock, crashPoint });
}

async function runCompact() {
  const { startCompact } = await load('compact/compact.js');
  const { openReader } = await load('stream/reader.js');
  const reader = await openReader(connection);
  const settings = {
    flushAgeMs: 40,
    flushMaxBytes: 1 << 26,
    flushMaxRows: 250_000,
    sealAgeMs: 300,
    sealMaxBytes: 1 << 27,
    retentionMs: 6000,
    duckdbMemoryMb: 256,
    checkpointEvery: 10,
  };
  const { openEnrichment } = await load('enrichment/enrichment.js');
  const enrichment = enriches === true ? await openEnrichment() : undefined;
  const compact = await startCompact(
    { reader, clock, metrics: createMetrics(), logger, crashPoint, enrichment },
    { lakeDir, spoolDir: path.join(folder, spool ?? 'spool'), ...settings, ...options },
  );
  process.stdout.write('ready\n');
  process.once('SIGTERM', () => void compact.stop());
  await compact.failed.catch((error) => {
    if (error.code === 'fenced') process.exitCode = 3;
    else if (error.code !== 'stopping') throw error;
  });
  await compact.stop();
}

await (replay === true ? runReplay() : erase === undefined ? runCompact() : runErase());
process.exit();
