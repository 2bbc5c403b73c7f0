import { spawn } from 'node:child_process';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { stopChild, watchExit, type RunningChild } from '../../../src/runtime/processes/child.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { startSupervisor } from '../../../src/runtime/processes/supervisor.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { isAlive, signalProcess } from '../../helpers/processes.ts';

beforeEach(oneTestIn(2));

const logger = createLogger('silent');
const never = new AbortController().signal;

/** A real process that runs until it is stopped. */
async function startSleeper(): Promise<RunningChild> {
  const child = spawn('sleep', ['600'], { stdio: 'ignore' });
  const exited = watchExit(child);
  return {
    pid: child.pid ?? 0,
    exited,
    stop: (graceMs) => stopChild(child, exited, graceMs),
    kill: () => void child.kill('SIGKILL'),
  };
}

describe('a supervisor', () => {
  it('A supervisor starts another child when one is killed, and reports why', async () => {
    const supervisor = await startSupervisor('sleeper', startSleeper, logger, never);
    const first = supervisor.state().pid ?? 0;
    signalProcess(first, 'SIGKILL');
    await expect.poll(() => supervisor.state().restarts).toBe(1);
    await expect.poll(() => supervisor.state().state).toBe('running');
    expect(supervisor.state()).toMatchObject({ name: 'sleeper', lastError: 'ended with SIGKILL' });
    expect(supervisor.state().pid).not.toBe(first);
    await supervisor.stop(1000);
  });

  it('A supervisor reports a child as unsteady that ended three times within a minute, but not one that was renewed on purpose', async () => {
    const supervisor = await startSupervisor('unsteady', startSleeper, logger, never);
    const next = async (end: () => void): Promise<void> => {
      const { pid } = supervisor.state();
      end();
      await expect.poll(() => supervisor.state().pid ?? pid, { timeout: 10_000 }).not.toBe(pid);
    };
    for (let n = 0; n < 3; n += 1) await next(() => supervisor.renew());
    for (let n = 0; n < 2; n += 1) await next(() => signalProcess(supervisor.state().pid ?? 0, 'SIGKILL'));
    expect(supervisor.state()).toMatchObject({ unsteady: false, restarts: 5 });
    await next(() => signalProcess(supervisor.state().pid ?? 0, 'SIGKILL'));
    expect(supervisor.state()).toMatchObject({ unsteady: true, restarts: 6 });
    await supervisor.stop(1000);
  });

  it('A child that ends while its folder is away is not unsteady for it', async () => {
    let isAway = true;
    const supervisor = await startSupervisor('explained', startSleeper, logger, never, () => isAway);
    const kill = async (): Promise<void> => {
      const pid = supervisor.state().pid ?? 0;
      signalProcess(pid, 'SIGKILL');
      await expect.poll(() => supervisor.state().pid ?? pid, { timeout: 10_000 }).not.toBe(pid);
    };
    for (let n = 0; n < 3; n += 1) await kill();
    expect(supervisor.state()).toMatchObject({ unsteady: false, restarts: 3 });
    isAway = false;
    for (let n = 0; n < 3; n += 1) await kill();
    expect(supervisor.state()).toMatchObject({ unsteady: true, restarts: 6 });
    await supervisor.stop(1000);
  });

  it.each(['broker_away', 'broker_refused', 'folder_lost'] as const)(
    'A supervisor does not report a child as unsteady whose start fails because of a separate problem (%s)',
    async (code) => {
      let tries = 0;
      const start = async (): Promise<RunningChild> => {
        tries += 1;
        if (tries > 1) throw new AppError(code, 'not now');
        return startSleeper();
      };
      const supervisor = await startSupervisor('waiting', start, logger, never);
      signalProcess(supervisor.state().pid ?? 0, 'SIGKILL');
      await expect.poll(() => tries, { timeout: 20_000 }).toBe(5);
      expect(supervisor.state()).toMatchObject({ unsteady: false });
      await supervisor.stop(1000);
    },
  );

  it('A supervisor neither reports nor restarts a child that is stopped together with the whole service', async () => {
    const lines: string[] = [];
    const telling = pino({}, { write: (line: string) => void lines.push(line) });
    const stop = new AbortController();
    let starts = 0;
    const supervisor = await startSupervisor('sleeper', () => ((starts += 1), startSleeper()), telling, stop.signal);
    signalProcess(supervisor.state().pid ?? 0, 'SIGTERM');
    // the signal to the whole group reaches this process a moment later
    stop.abort();
    await supervisor.stop(1000);
    expect({ starts, lines }).toEqual({ starts: 1, lines: [] });
  });

  it('A supervisor keeps nothing when the first start fails', async () => {
    await expect(
      startSupervisor('broken', () => Promise.reject(new Error('no such program')), logger, never),
    ).rejects.toThrow('no such program');
  });

  it('A supervisor retries when a later start fails', async () => {
    let starts = 0;
    const start = (): Promise<RunningChild> => {
      starts += 1;
      return starts === 2 ? Promise.reject(new Error('port taken')) : startSleeper();
    };
    const supervisor = await startSupervisor('flaky', start, logger, never);
    signalProcess(supervisor.state().pid ?? 0, 'SIGKILL');
    await expect.poll(() => starts).toBe(3);
    await expect.poll(() => supervisor.state().state).toBe('running');
    await supervisor.stop(1000);
  });

  it('A supervisor stops at once while a restart hangs', async () => {
    let starts = 0;
    const start = async (unwanted: AbortSignal): Promise<RunningChild> => {
      starts += 1;
      if (starts > 1)
        await new Promise((_, reject) =>
          unwanted.addEventListener('abort', () => reject(new Error('no longer wanted'))),
        );
      return startSleeper();
    };
    const supervisor = await startSupervisor('hanging', start, logger, never);
    signalProcess(supervisor.state().pid ?? 0, 'SIGKILL');
    await expect.poll(() => starts).toBe(2);
    expect(supervisor.state().state).toBe('starting');
    await supervisor.stop(60_000);
    expect(supervisor.state()).toMatchObject({ state: 'stopped', pid: undefined });
  });

  it('A supervisor leaves no process when it stops, even in the middle of a restart', async () => {
    const pids: number[] = [];
    const start = async (): Promise<RunningChild> => {
      const child = await startSleeper();
      pids.push(child.pid);
      return child;
    };
    const supervisor = await startSupervisor('sleeper', start, logger, never);
    signalProcess(pids[0] ?? 0, 'SIGKILL');
    await expect.poll(() => pids.length).toBe(2);
    await supervisor.stop(1000);
    expect(supervisor.state().state).toBe('stopped');
    expect(pids.filter(isAlive)).toEqual([]);
  });
});
