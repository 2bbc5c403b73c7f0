import { spawn } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { stopChild, watchExit, type RunningChild } from '../../../src/runtime/child.ts';
import { startKeeper } from '../../../src/runtime/keeper.ts';
import { createLogger } from '../../../src/runtime/logger.ts';

const logger = createLogger('silent');

/** A real process that runs until it is told to stop. */
async function startSleeper(): Promise<RunningChild> {
  const child = spawn('sleep', ['600'], { stdio: 'ignore' });
  const exited = watchExit(child);
  return { pid: child.pid ?? 0, exited, stop: (graceMs) => stopChild(child, exited, graceMs), kill: () => void child.kill('SIGKILL') };
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('a keeper', () => {
  it('starts another child when one is killed, and says why', async () => {
    const keeper = await startKeeper('sleeper', startSleeper, logger);
    const first = keeper.state().pid ?? 0;
    process.kill(first, 'SIGKILL');
    await expect.poll(() => keeper.state().restarts).toBe(1);
    await expect.poll(() => keeper.state().state).toBe('running');
    expect(keeper.state()).toMatchObject({ name: 'sleeper', lastError: 'ended with SIGKILL' });
    expect(keeper.state().pid).not.toBe(first);
    await keeper.stop(1000);
  });

  it('keeps nothing when the first start fails', async () => {
    await expect(startKeeper('broken', () => Promise.reject(new Error('no such program')), logger)).rejects.toThrow('no such program');
  });

  it('goes on trying when a later start fails', async () => {
    let starts = 0;
    const start = (): Promise<RunningChild> => {
      starts += 1;
      return starts === 2 ? Promise.reject(new Error('port taken')) : startSleeper();
    };
    const keeper = await startKeeper('flaky', start, logger);
    process.kill(keeper.state().pid ?? 0, 'SIGKILL');
    await expect.poll(() => starts).toBe(3);
    await expect.poll(() => keeper.state().state).toBe('running');
    await keeper.stop(1000);
  });

  it('leaves no process when it stops, even in the middle of a restart', async () => {
    const pids: number[] = [];
    const start = async (): Promise<RunningChild> => {
      const child = await startSleeper();
      pids.push(child.pid);
      return child;
    };
    const keeper = await startKeeper('sleeper', start, logger);
    process.kill(pids[0] ?? 0, 'SIGKILL');
    await expect.poll(() => pids.length).toBe(2);
    await keeper.stop(1000);
    expect(keeper.state().state).toBe('stopped');
    expect(pids.filter(isRunning)).toEqual([]);
  });
});
