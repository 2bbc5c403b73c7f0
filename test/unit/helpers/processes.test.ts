import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createProcessMemory, isAlive } from '../../helpers/processes.ts';

const triesForSameId = 200;

async function startSleeper(): Promise<ChildProcess & { readonly pid: number }> {
  const child = spawn('sleep', ['60'], { stdio: 'ignore' });
  await once(child, 'spawn');
  return child as ChildProcess & { readonly pid: number };
}

async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

test('A set of processes has those that run, until they exit', async () => {
  const memory = createProcessMemory();
  const [one, other] = [await startSleeper(), await startSleeper()];
  onTestFinished(() => end(other));
  memory.note([one.pid, other.pid]);
  expect(memory.alive()).toEqual([one.pid, other.pid]);
  await end(one);
  expect(memory.alive()).toEqual([other.pid]);
});

test('A process with the reused id of an earlier one is another one', async ({ skip }) => {
  const memory = createProcessMemory();
  const first = await startSleeper();
  memory.note([first.pid]);
  await end(first);
  // The start time of a process has a resolution of 10 ms.
  await pass(30);
  for (let tries = 0; tries < triesForSameId; tries += 1) {
    try {
      writeFileSync('/proc/sys/kernel/ns_last_pid', String(first.pid - 1));
    } catch {
      skip('the next process id can be set by root only');
    }
    const second = await startSleeper();
    if (second.pid !== first.pid) {
      await end(second);
      continue;
    }
    onTestFinished(() => end(second));
    expect(isAlive(first.pid)).toBe(true);
    expect(memory.alive()).toEqual([]);
    memory.note([second.pid]);
    expect(memory.alive()).toEqual([second.pid]);
    return;
  }
  skip('other processes took the id each time');
});
