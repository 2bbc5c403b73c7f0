import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { acquireLock, takeOverLock, waitForLock } from '../../../src/runtime/lock.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { within } from '../../helpers/wait.ts';

const root = temporaryFolder();

describe('a lock', () => {
  it('is refused to the second, naming the first, until it is released', () => {
    const file = path.join(root, 'one', 'lock');
    const lock = acquireLock(file, 'the first');
    expect(() => acquireLock(file, 'the second')).toThrow(expect.objectContaining({ code: 'locked', message: expect.stringContaining(`the first (pid ${process.pid})`) }));
    lock.release();
    acquireLock(file, 'the second').release();
  });

  it('ends with the process that holds it, kill -9 included', async () => {
    const file = path.join(root, 'two', 'lock');
    acquireLock(file, 'to make the folder').release();
    const holder = spawn('flock', ['--no-fork', file, 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    await expect.poll(() => {
      try {
        acquireLock(file, 'probe').release();
        return 'free';
      } catch {
        return 'held';
      }
    }).toBe('held');
    holder.kill('SIGKILL');
    await within('the holder is gone', once(holder, 'exit'));
    (await waitForLock(file, 'the next', 5000)).release();
  });

  it('passes to a child that inherits the descriptor', async () => {
    const file = path.join(root, 'three', 'lock');
    const lock = acquireLock(file, 'the parent');
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit', lock.fd] });
    lock.release();
    expect(() => acquireLock(file, 'another')).toThrow(expect.objectContaining({ code: 'locked' }));
    child.kill('SIGKILL');
    await within('the child is gone', once(child, 'exit'));
    (await waitForLock(file, 'the next', 5000)).release();
  });
});

describe('taking over a lock', () => {
  it('is refused at once while the holder runs', async () => {
    const file = path.join(root, 'four', 'lock');
    const lock = acquireLock(file, 'the first');
    await expect(takeOverLock(file, 'the second', 60_000)).rejects.toMatchObject({ code: 'locked' });
    lock.release();
  });

  it('waits for a child that outlives the holder', async () => {
    const file = path.join(root, 'five', 'lock');
    const lock = acquireLock(file, 'the parent');
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit', lock.fd] });
    lock.release();
    // A holder that has ended: no process has this id.
    writeFileSync(file, 'the parent (pid 4194305)\n');
    const taking = takeOverLock(file, 'the next', 20_000);
    child.kill('SIGKILL');
    const lockOfTheNext = await taking;
    expect(readFileSync(file, 'utf8')).toContain('the next');
    lockOfTheNext.release();
  });
});
