import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { balanceAccounts, totalsOf, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { findPublishedUnsynced, findUnsynced, injectErrors, type DiskError } from '../helpers/disk-errors.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger } from '../helpers/ledger.ts';
import { startLoad } from '../helpers/load.ts';
import { isAlive, type ProcessRole } from '../helpers/processes.ts';
import { startWithUser } from '../helpers/service-access.ts';
import { missingForTraces } from '../helpers/trace.ts';
import { waitFor } from '../helpers/wait.ts';

/*
 * Disk errors by strace: system calls of the processes of a real service under load fail. No acknowledged event may be
 * lost, nothing may be built upon a failed sync, and the service must recover automatically.
 */
const rounds = chaosFigure('TRIBUTARY_TEST_DISK_ERROR_ROUNDS', { short: 1, long: 2 });
const seed = chaosSeed();

interface Fault extends Omit<DiskError, 'when'> {
  readonly role: ProcessRole;
  /** Only in the long form: another fault of the short one shows the same. */
  readonly rare?: true;
}

const syncs = 'fsync,fdatasync';
const renames = 'rename,renameat,renameat2';
const faults: readonly Fault[] = [
  { role: 'nats-server', calls: syncs, error: 'EIO' },
  { role: 'compact', calls: syncs, error: 'EIO' },
  { role: 'compact', calls: 'openat', error: 'ENOSPC' },
  { role: 'export', calls: syncs, error: 'EIO' },
  { role: 'nats-server', calls: 'pwrite64', error: 'EIO', rare: true },
  { role: 'nats-server', calls: 'pwrite64', error: 'ENOSPC', rare: true },
  { role: 'nats-server', calls: 'openat', error: 'EIO', rare: true },
  { role: 'nats-server', calls: 'pread64,read', error: 'EIO', rare: true },
  { role: 'compact', calls: 'unlink,unlinkat', error: 'EIO', rare: true },
  { role: 'compact', calls: 'link,linkat', error: 'EIO', rare: true },
  { role: 'compact', calls: renames, error: 'EIO', rare: true },
  { role: 'compact', calls: 'openat', error: 'EIO', rare: true },
  { role: 'compact', calls: 'pread64', error: 'EIO', rare: true },
  { role: 'export', calls: renames, error: 'EIO', rare: true },
  { role: 'export', calls: 'openat', error: 'ENOSPC', rare: true },
  { role: 'export', calls: 'openat', error: 'EIO', rare: true },
];

/** Faults that nats-server handles without a log line: it retries, or has the block in memory. */
const quietInBroker = /openat|read/;

/** A fault lasts until this many calls have failed, its process has exited, or the time has elapsed. */
const enoughErrors = 3;
const longestFaultMs = 4000;
const recoveryMs = 60_000;
const settings = {
  TRIBUTARY_INGEST_WORKERS: isLongRun ? '2' : '1',
  TRIBUTARY_QUOTA_USER: 'off',
  TRIBUTARY_QUOTA_IP: 'off',
  TRIBUTARY_MAX_EXPORTS: '1000',
  TRIBUTARY_FLUSH_AGE_MS: '200',
  TRIBUTARY_SEAL_AGE_MS: '1500',
  TRIBUTARY_LOG_LEVEL: 'warn',
};

/** Returns every fault of the form, `rounds` times, each time in another order. */
function draw(random: Random): (Fault & DiskError)[] {
  const list = faults.filter((fault) => rounds > 1 || fault.rare !== true);
  return Array.from({ length: rounds }, () =>
    list.map((fault) => ({ fault, at: random.next() })).toSorted((a, b) => a.at - b.at),
  )
    .flat()
    .map(({ fault }) => ({ ...fault, when: `${random.integer(1, 3)}+${random.integer(1, 5)}` }));
}

/** Returns the text of the whole log of the lake's table. */
function readLog(dataDir: string): string {
  const folder = path.join(dataDir, 'lake', 'events', '_delta_log');
  return readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => readFileSync(path.join(folder, name), 'utf8'))
    .join('');
}

const missing = missingForTraces();

test(
  'Disk calls that fail, in any process and under load, lose no acknowledged event, and the service recovers automatically',
  async (ctx) => {
    inLongForm(ctx.skip);
    ctx.skip(missing !== undefined, missing);
    const random = createRandom(seed);
    const folder = testFolder();
    const dataDir = path.join(folder, 'data');
    const { service, token, user } = await startWithUser({ dataDir, settings });
    const analyst = createExportClient(service, user);
    const query = exportQuery('eventId,eventName');
    const ledger = createLedger('disk');
    const load = startLoad(ledger, {
      s2s: () => service.s2s,
      idApp: 1,
      token,
      random,
      clients: 4,
      pauseMs: 10,
    });
    await waitFor(
      'events flow into the lake',
      async () =>
        (await totalsOf(dataDir).catch(() => undefined))?.stored !== undefined && ledger.totals().acknowledged > 200,
    );

    let [felt, errors, failedSyncs, slowestRecoveryMs] = [0, 0, 0, 0];
    const silent: string[] = [];
    const built: string[] = [];
    const exports: (string | undefined)[] = [];
    const drawn = draw(random);
    for (const [index, fault] of drawn.entries()) {
      // The previous fault may have ended its process late; it is being restarted.
      let pid = 0;
      await waitFor(
        `a process has the role ${fault.role}`,
        () => (pid = service.processes().find(({ role }) => role === fault.role)?.pid ?? 0) > 0,
        recoveryMs,
      );
      const name = `${fault.calls} of ${fault.role}: ${fault.error}, ${fault.when}`;
      const logBefore = service.lastLog(Number.MAX_SAFE_INTEGER).length;
      const injection = await injectErrors(pid, fault, path.join(folder, `trace-${index}`));
      const overAt = performance.now() + longestFaultMs;
      // the errors should also hit an export; meanwhile it may be rejected
      if (fault.role === 'export') exports.push(await analyst.create(query).catch(() => undefined));
      await waitFor(
        'enough calls have failed',
        () => injection.injected() >= enoughErrors || !isAlive(pid) || performance.now() > overAt,
        2 * longestFaultMs,
      );
      const steps = await injection.stop();
      const failed = steps.filter(({ result }) => result.includes('INJECTED'));
      // Other files, such as those in /proc, belong to the system and do not count.
      const injected = failed.filter(({ text }) => text.includes(dataDir)).length;

      const passedAt = performance.now();
      const acknowledged = ledger.totals().acknowledged;
      const { streamed } = await totalsOf(dataDir);
      await waitFor(
        `import and the lake continue after ${name}`,
        async () =>
          ledger.totals().acknowledged > acknowledged + 100 && (await totalsOf(dataDir)).streamed > streamed + 100,
        recoveryMs,
      );
      const tookMs = performance.now() - passedAt;
      await waitFor(
        'an export can be created',
        async () =>
          exports.push(await analyst.create(query).catch(() => undefined)) > 0 && exports.at(-1) !== undefined,
        recoveryMs,
      );

      felt += injected > 0 ? 1 : 0;
      errors += injected;
      slowestRecoveryMs = Math.max(slowestRecoveryMs, tookMs);
      const told = /EIO|ENOSPC|input\/output|I\/O error|no space/i.test(
        service.lastLog(Number.MAX_SAFE_INTEGER).slice(logBefore),
      );
      if (injected > 0 && !told && !(fault.role === 'nats-server' && quietInBroker.test(fault.calls)))
        silent.push(
          `${name}: ${failed
            .filter(({ text }) => text.includes(dataDir))
            .map(({ text }) => text)
            .join(', ')}`,
        );
      process.stderr.write(
        `disk errors: ${name}: ${failed.length} calls failed, ${injected} of them on our files, back after ${Math.round(tookMs)} ms${told ? '' : ', not in the log'}\n`,
      );
      if (fault.role === 'nats-server') continue;
      const unsynced = findUnsynced(steps);
      failedSyncs += unsynced.length;
      const log = readLog(dataDir);
      built.push(
        ...findPublishedUnsynced(steps),
        ...unsynced.filter((file) => file.endsWith('.parquet') && log.includes(`/${path.basename(file)}"`)),
      );
    }

    await load.stop();
    await waitUntilWorkedOff(service);
    const ends = await Promise.all(exports.flatMap((id) => id ?? []).map((id) => analyst.waitForEnd(id)));
    const succeeded = ends.filter(({ status }) => status === 'Success!');
    for (const end of succeeded.slice(-3)) await analyst.download(end);
    await service.stop();
    const { results, rows } = await balanceAccounts(dataDir, [ledger]);

    expect(built, 'built upon although its sync had failed').toEqual([]);
    expect(silent, 'disk errors without a line in the log').toEqual([]);
    expect(felt).toBeGreaterThan(drawn.length / 2);
    recordFinding({
      promise: 'P3',
      what: 'calls to the disk fail with EIO and ENOSPC in each process',
      wanted:
        '0 acknowledged lost, nothing built upon a failed sync, each in the log, the service recovers automatically',
      figures: {
        faults: drawn.length,
        faultsFelt: felt,
        failedCalls: errors,
        failedSyncs,
        builtUponFailedSync: built.length,
        notTold: silent.length,
        slowestRecoveryMs: Math.round(slowestRecoveryMs),
        exportsInError: ends.length - succeeded.length,
        exportsGood: succeeded.length,
        acknowledgedEvents: results[0]?.acknowledged ?? 0,
        unknownEvents: results[0]?.unknown ?? 0,
        rows,
        lostEvents: 0,
        doubledEvents: 0,
      },
      reached: true,
      seed,
      again: `make chaos PART=disk-errors SEED=${seed}`,
    });
  },
  120_000 + rounds * faults.length * 30_000,
);
