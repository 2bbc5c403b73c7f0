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
    const folder = path.join(root, 'one');
    const lock = acquireLock(folder, 'the first');
    expect(() => acquireLock(folder, 'the second')).toThrow(expect.objectContaining({ code: 'locked', message: expect.stringContaining(`the first (pid ${process.pid})`) }));
    lock.release();
    acquireLock(folder, 'the second').release();
  });

  it('ends with the process that holds it, kill -9 included', async () => {
    const folder = path.join(root, 'two');
    acquireLock(folder, 'to make the folder').release();
    const holder = spawn('flock', ['--no-fork', folder, 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    await expect.poll(() => {
      try {
        acquireLock(folder, 'probe').release();
        return 'free';
      } catch {
        return 'held';
      }
    }).toBe('held');
    holder.kill('SIGKILL');
    await within('the holder is gone', once(holder, 'exit'));
    (await waitForLock(folder, 'the next', 5000)).release();
  });

  it('passes to a child that inherits the descriptor', async () => {
    const folder = path.join(root, 'three');
    const lock = acquireLock(folder, 'the parent');
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit', lock.fd] });
    lock.release();
    expect(() => acquireLock(folder, 'another')).toThrow(expect.objectContaining({ code: 'locked' }));
    child.kill('SIGKILL');
    await within('the child is gone', once(child, 'exit'));
    (await waitForLock(folder, 'the next', 5000)).release();
  });
});

describe('taking over a lock', () => {
  it('is refused at once while the holder runs', async () => {
    const folder = path.join(root, 'four');
    const lock = acquireLock(folder, 'the first');
    await expect(takeOverLock(folder, 'the second', { waitMs: 60_000 })).rejects.toMatchObject({ code: 'locked' });
    lock.release();
  });

  it('waits for a child that outlives the holder', async () => {
    const folder = path.join(root, 'five');
    const lock = acquireLock(folder, 'the parent');
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit', lock.fd] });
    lock.release();
    // A holder that has ended: no process has this id.
    writeFileSync(path.join(folder, '.lock'), 'the parent (pid 4194305)\n');
    const taking = takeOverLock(folder, 'the next', { waitMs: 20_000 });
    child.kill('SIGKILL');
    const lockOfTheNext = await taking;
    expect(readFileSync(path.join(folder, '.lock'), 'utf8')).toContain('the next');
    lockOfTheNext.release();
  });
});
