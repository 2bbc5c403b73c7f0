import path from 'node:path';
import { describe, expect, it, onTestFinished, type TestContext } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { acquireLock, type Lock } from '../../src/runtime/files/lock.ts';
import { isLongRun } from '../helpers/chaos.ts';
import { importEvent } from '../helpers/every-place.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { createLedger } from '../helpers/ledger.ts';
import { startLoad } from '../helpers/load.ts';
import { startTestNats } from '../helpers/nats.ts';
import { startProbe } from '../helpers/probe.ts';
import { readLog, readReadiness, readStatusProblems } from '../helpers/problems.ts';
import { signalProcess, type ProcessRole } from '../helpers/processes.ts';
import { makeReadOnly } from '../helpers/read-only.ts';
import { startWithApp, type ServiceWithApp } from '../helpers/service-access.ts';
import type { TestService } from '../helpers/service.ts';
import { mountSmallDisk } from '../helpers/small-disk.ts';
import { waitFor } from '../helpers/wait.ts';

/**
 * If the service rejects traffic, or is about to, `/readyz`, the log and `tributary status` report the problem and the
 * action. All three report its end.
 */

const mebibyte = 1024 * 1024;
const patienceMs = 40_000;
const random = createRandom(1);
const root = temporaryFolder();
let services = 0;

function start(
  settings: Readonly<Record<string, string>>,
  dataDir = path.join(root, `data-${(services += 1)}`),
): Promise<ServiceWithApp> {
  return startWithApp({ dataDir, settings });
}

const hasSince = ({ since }: { readonly since?: unknown }): boolean => Date.parse(String(since)) <= Date.now();

/** Waits until all three report the problem, each with its action and its start time. */
async function isTold(service: TestService, what: RegExp, todo: RegExp, isImportReady = false): Promise<void> {
  const matches = (problem: { readonly message?: unknown; readonly action?: unknown }): boolean =>
    what.test(String(problem.message)) && todo.test(String(problem.action));
  await waitFor(
    `/readyz reports ${what}`,
    async () => {
      const answer = await readReadiness(service);
      return answer?.status === 503 && answer.problems.some((problem) => matches(problem) && hasSince(problem));
    },
    patienceMs,
  );
  // A public port reports only whether its own area works.
  await waitFor(
    `the public ports say that imports are ${isImportReady ? '' : 'not '}ready and exports are`,
    async () => {
      const answers = await Promise.all([service.s2s, service.api].map((area) => fetch(`${area}/readyz`)));
      const texts = await Promise.all(answers.map((answer) => answer.text()));
      const wanted = [isImportReady, true];
      return (
        answers.every(({ status }, n) => status === (wanted[n] === true ? 200 : 503)) &&
        texts.every((text, n) => text === JSON.stringify({ ready: wanted[n] }))
      );
    },
    patienceMs,
  );
  await waitFor(
    `tributary status reports ${what}`,
    async () => (await readStatusProblems(service)).some((problem) => matches(problem) && hasSince(problem)),
    patienceMs,
  );
  await waitFor(
    `the log reports ${what}`,
    () => readLog(service).some((line) => line['msg'] === 'problem' && line['level'] === 'error' && matches(line)),
    patienceMs,
  );
}

/** Waits until all three report the end of the problem. */
async function isOver(service: TestService, what: RegExp): Promise<void> {
  await waitFor('the service is ready again', async () => (await readReadiness(service))?.status === 200, patienceMs);
  await waitFor(
    `the log reports the end of ${what}`,
    () =>
      readLog(service).some(
        (line) =>
          line['msg'] === 'problem resolved' &&
          what.test(String(line['message'])) &&
          Date.parse(String(line['since'])) < Date.parse(String(line['time'])),
      ),
    patienceMs,
  );
}

const pidOf = (service: TestService, role: ProcessRole): number =>
  service.processes().find((found) => found.role === role)?.pid ?? 0;

/** Suspends the broker. */
async function stallBroker({ service }: ServiceWithApp): Promise<void> {
  // no client sends: the service detects it on its own
  const broker = pidOf(service, 'nats-server');
  signalProcess(broker, 'SIGSTOP');
  await isTold(service, /^the broker does not accept events/, /check the log lines/);
  await isTold(service, /^nats-server is unresponsive/, /kill -9/);
  signalProcess(broker, 'SIGCONT');
  await isOver(service, /^nats-server is unresponsive/);
  expect(await readStatusProblems(service)).toEqual([]);
}

/** Makes the lake read-only. */
async function closeLake({ service, token }: ServiceWithApp): Promise<void> {
  // no client sends; events sent meanwhile are accepted
  const readOnly = makeReadOnly(path.join(service.dataDir, 'lake'));
  if (readOnly !== undefined) {
    await isTold(service, /^the lake has not been writable since .*: (EROFS|EACCES)/, /mounted read-only/, true);
    await importEvent(service, token, { key: 'read-only', name: 'read-only', user: 'steady' });
    readOnly.undo();
    await isOver(service, /^the lake has not been writable/);
  }
}

/** Fills the stream. */
async function fillStream({ service, token }: ServiceWithApp): Promise<void> {
  const compactor = pidOf(service, 'compact');
  signalProcess(compactor, 'SIGSTOP');
  const load = startLoad(createLedger('load'), {
    s2s: () => service.s2s,
    idApp: 1,
    token,
    random,
    clients: 4,
    batchShare: 1,
  });
  await isTold(service, /^the stream is full/, /the compactor runs.*TRIBUTARY_STREAM_MAX_BYTES/);
  signalProcess(compactor, 'SIGCONT');
  await isOver(service, /^the stream is full/);
  await load.stop();
  expect(await readStatusProblems(service)).toEqual([]);
  // one line per start of the problem, regardless of the number of rejected requests
  expect(
    readLog(service).filter(({ msg, message }) => msg === 'problem' && /stream is full/.test(String(message))).length,
  ).toBeLessThanOrEqual(2);
  expect(readLog(service).filter(({ msg }) => msg === 'request refused')).toEqual([]);
}

/** Holds the compactor down. */
async function holdCompactor({ service }: ServiceWithApp): Promise<void> {
  let lock: Lock | undefined;
  await service.kill9('compact', random);
  await waitFor('the lock of the killed compactor is taken', () => {
    try {
      lock = acquireLock(lakePaths(path.join(service.dataDir, 'lake')).compactorLock, 'a test');
    } catch {
      // the killed one's lock is not yet released
    }
    return lock !== undefined;
  });
  await isTold(service, /^compact is (down|restarting)/, /log lines with "process":"compact"/, true);
  lock?.release();
  await isOver(service, /^compact is/);
  expect(await readStatusProblems(service)).toEqual([]);
}

describe('problems in /readyz, the log and status', () => {
  it(
    'A problem is reported while the broker is stalled, the lake read-only, the stream full, the compactor down, the supervisor dead or the disk at its reserve, and is resolved with its cause',
    { timeout: 300_000 },
    async () => {
      const place = await start({ TRIBUTARY_STREAM_MAX_BYTES: String(mebibyte) });
      const { service, token } = place;

      for (const happen of inTurn([stallBroker, closeLake, fillStream, holdCompactor], 4)) await happen(place);

      await service.kill9('supervisor', random);
      await waitFor(
        'status reports that the service has exited',
        async () =>
          (await readStatusProblems(service)).some(
            ({ message, action }) =>
              /the service of pid \d+ crashed/.test(message) && /Start the service again/.test(action),
          ),
        patienceMs,
      );

      await service.startAgain({
        TRIBUTARY_STREAM_MAX_BYTES: String(mebibyte),
        TRIBUTARY_DISK_RESERVE_BYTES: String(Number.MAX_SAFE_INTEGER),
      });
      const probe = startProbe(createLedger('probe'), { s2s: () => service.s2s, idApp: 1, token });
      await isTold(service, /^free space on the stream's disk is below the reserve/, /Free some space/);
      await probe.stop();
      expect(probe.answers.length).toBeGreaterThan(0);
      for (const { status, retryAfter } of probe.answers)
        expect({ status, retryAfter }).toEqual({ status: 500, retryAfter: '1' });
      expect((await readStatusProblems(service)).map(({ message }) => message)).not.toContainEqual(
        expect.stringMatching(/the service of pid \d+ crashed/),
      );
      await service.stop();
    },
  );

  it('A problem is reported while the lake cannot be written', { timeout: 200_000 }, async (ctx: TestContext) => {
    if (!isLongRun) ctx.skip('in the long form');
    const dataDir = path.join(testFolder(), 'data');
    const disk = mountSmallDisk(path.join(dataDir, 'lake'), 32 * mebibyte);
    if (disk === undefined) ctx.skip('a small file system can only be mounted by root');
    const { service, token } = await start({ TRIBUTARY_DISK_RESERVE_BYTES: String(mebibyte) }, dataDir);
    const probe = startProbe(createLedger('probe'), { s2s: () => service.s2s, idApp: 1, token });
    disk.fill(0);
    await isTold(service, /^free space on the lake's disk is below the reserve/, /Free some space/, true);
    await isTold(
      service,
      /^no events have been committed from the stream to the lake since .*: .*(No space left|ENOSPC)/i,
      /Remove the cause/,
      true,
    );
    disk.empty();
    await isOver(service, /^no events have been committed from the stream to the lake/);
    expect(await readStatusProblems(service)).toEqual([]);
    await probe.stop();
    await service.stop();
  });

  it('A problem is reported while an external broker is away', { timeout: 200_000 }, async (ctx: TestContext) => {
    if (!isLongRun) ctx.skip('in the long form');
    const nats = await startTestNats();
    onTestFinished(() => nats.stop());
    const { user, password, port } = nats.current().address;
    const { service } = await start({
      TRIBUTARY_NATS_URL: `nats://${user}:${password}@127.0.0.1:${port}`,
      TRIBUTARY_STREAM_MAX_BYTES: String(64 * mebibyte),
    });
    await nats.kill();
    await isTold(service, /^the broker does not accept events/, /TRIBUTARY_NATS_URL/);
    await nats.restart();
    await isOver(service, /^the broker does not accept events/);
    expect(await readStatusProblems(service)).toEqual([]);
    await service.stop();
  });
});
