import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { acquireLock, isLocked, takeOverLock, waitForLock } from '../../../../src/runtime/files/lock.ts';
import { temporaryFolder } from '../../../helpers/folder.ts';
import { within } from '../../../helpers/wait.ts';

const root = temporaryFolder();

describe('a lock', () => {
  it('A lock is refused to the second, naming the first, until it is released', () => {
    const folder = path.join(root, 'one');
    const lock = acquireLock(folder, 'the first');
    expect(() => acquireLock(folder, 'the second')).toThrow(
      expect.objectContaining({ code: 'locked', message: expect.stringContaining(`the first (pid ${process.pid})`) }),
    );
    lock.release();
    acquireLock(folder, 'the second').release();
  });

  it('A lock ends with the process that holds it, kill -9 included', async () => {
    const folder = path.join(root, 'two');
    acquireLock(folder, 'to make the folder').release();
    const holder = spawn('flock', ['--no-fork', folder, 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    await expect
      .poll(() => {
        try {
          acquireLock(folder, 'probe').release();
          return 'free';
        } catch {
          return 'held';
        }
      })
      .toBe('held');
    holder.kill('SIGKILL');
    await within('the holder has exited', once(holder, 'exit'));
    (await waitForLock(folder, 'the next', 5000)).release();
  });

  it('A lock passes to a child that inherits the descriptor', async () => {
    const folder = path.join(root, 'three');
    const lock = acquireLock(folder, 'the parent');
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit', lock.fd] });
    lock.release();
    expect(() => acquireLock(folder, 'another')).toThrow(expect.objectContaining({ code: 'locked' }));
    child.kill('SIGKILL');
    await within('the child has exited', once(child, 'exit'));
    (await waitForLock(folder, 'the next', 5000)).release();
  });
});

describe('taking over a lock', () => {
  it('The takeover of a lock is refused at once while the holder runs', async () => {
    const folder = path.join(root, 'four');
    const lock = acquireLock(folder, 'the first');
    await expect(takeOverLock(folder, 'the second', { waitMs: 60_000 })).rejects.toMatchObject({ code: 'locked' });
    lock.release();
  });

  it('The takeover of a lock waits for a child that outlives the holder', async () => {
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

describe('the lock of a folder', () => {
  it('The lock of a folder cannot be removed with a file, nor avoided by another path to the folder', () => {
    const folder = path.join(root, 'six');
    const lock = acquireLock(folder, 'the first');
    for (const name of readdirSync(folder)) rmSync(path.join(folder, name));
    expect(() => acquireLock(folder, 'the second')).toThrow(
      expect.objectContaining({ code: 'locked', message: expect.stringContaining('in use by another process') }),
    );
    symlinkSync(folder, path.join(root, 'link'));
    expect(() => acquireLock(path.join(root, 'link'), 'the second')).toThrow(
      expect.objectContaining({ code: 'locked' }),
    );
    expect(isLocked(folder)).toBe(true);
    lock.release();
    expect(isLocked(folder)).toBe(false);
  });

  it('The lock of a folder is lost when another folder is at the path, and held again when it is restored', () => {
    const folder = path.join(root, 'seven');
    const lock = acquireLock(folder, 'the first');
    renameSync(folder, `${folder}-away`);
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'folder_lost' }));
    acquireLock(folder, 'the second').release();
    expect(() => lock.assertHeld()).toThrow(expect.objectContaining({ code: 'folder_lost' }));
    rmSync(folder, { recursive: true });
    renameSync(`${folder}-away`, folder);
    expect(() => lock.assertHeld()).not.toThrow();
    lock.release();
  });

  it('The lock of a folder is taken where its name cannot be written', () => {
    const folder = path.join(root, 'eight');
    mkdirSync(path.join(folder, '.lock'), { recursive: true });
    const lock = acquireLock(folder, 'the first');
    expect(() => acquireLock(folder, 'the second')).toThrow(/in use/);
    lock.release();
  });
});
