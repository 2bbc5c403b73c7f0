import type * as Fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { Readable } from 'node:stream';
import type { Disk, Inode } from './disk.ts';
import { activeWorld, type Hazards, type World } from './world.ts';

/**
 * The double of `node:fs/promises` and of the read streams of `node:fs`: the same calls on a real folder, each an
 * operation of the simulated world. A call may fail as on a disk, and a kill may leave a partial write. The disk
 * records what was created, renamed and fsynced. Only calls that the tested code uses exist; a test fails at any other.
 */

// This double also replaces node:fs, so that the real one cannot be imported.
const fs: typeof Fs = process.getBuiltinModule('node:fs');

const readErrors = ['EIO', 'EMFILE'] as const;
const writeErrors = ['EIO', 'ENOSPC', 'EDQUOT'] as const;

function systemError(code: string, syscall: string, file: string): Error {
  return Object.assign(new Error(`${code}: simulated, ${syscall} '${file}'`), { code, syscall, path: file });
}

function relativeName(disk: Disk, file: string): string {
  return path.relative(disk.root, file);
}

/** Runs an operation on a path. `codes`: how it may fail; `mayBeDone`: whether a failed one may have taken effect. */
function call<T>(
  name: string,
  file: string,
  codes: readonly string[],
  execute: (disk: Disk | undefined) => T,
  hazards: Hazards & { readonly mayBeDone?: boolean } = {},
): Promise<T> {
  const world = activeWorld();
  if (world === undefined) return Promise.resolve().then(() => execute(undefined));
  world.touch(file);
  const fault = (): { error: Error; done: boolean } => ({
    error: systemError(world.random.pick(codes), name, relativeName(world.disk, file)),
    done: hazards.mayBeDone === true && world.random.chance(0.3),
  });
  return world.operate(`${name} ${relativeName(world.disk, file)}`, () => execute(world.disk), { fault, ...hazards });
}

function bytesOf(data: string | Uint8Array): Buffer {
  return typeof data === 'string' ? Buffer.from(data) : Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}

/** Writes bytes; a kill or a full disk may truncate them. */
function write(world: World | undefined, file: string, fd: number, data: string | Uint8Array): Promise<void> {
  const bytes = bytesOf(data);
  const part = (): void => void fs.writeSync(fd, bytes.subarray(0, world?.random.integer(0, bytes.length) ?? 0));
  return call('write', file, writeErrors, () => void fs.writeSync(fd, bytes), {
    torn: part,
    ...(world === undefined
      ? {}
      : {
          fault: () => {
            part();
            return {
              error: systemError(world.random.pick(writeErrors), 'write', relativeName(world.disk, file)),
              done: false,
            };
          },
        }),
  });
}

function readAll(fd: number): Buffer {
  const bytes = Buffer.alloc(fs.fstatSync(fd).size);
  fs.readSync(fd, bytes, 0, bytes.length, 0);
  return bytes;
}

function createHandle(file: string, fd: number, inode: Inode | undefined): object {
  const world = activeWorld();
  const owner = world?.current();
  const isFolder = inode?.isFolder ?? fs.fstatSync(fd).isDirectory();
  const closeNow = (): void => {
    if (!owner?.onEnd.delete(closeNow) && owner !== undefined) return;
    fs.closeSync(fd);
  };
  owner?.onEnd.add(closeNow);
  return {
    fd,
    writeFile: (data: string | Uint8Array) => write(world, file, fd, data),
    appendFile: (data: string | Uint8Array) => write(world, file, fd, data),
    write: (data: string | Uint8Array) => write(world, file, fd, data),
    stat: (options?: Fs.StatSyncOptions) => call('fstat', file, ['EIO'], () => fs.fstatSync(fd, options)),
    readFile: () => call('read', file, ['EIO'], () => readAll(fd)),
    read: (buffer: Buffer, offset: number, length: number, position: number) =>
      call('read', file, ['EIO'], () => ({ buffer, bytesRead: fs.readSync(fd, buffer, offset, length, position) })),
    truncate: (bytes: number) => call('truncate', file, ['EIO'], () => fs.ftruncateSync(fd, bytes)),
    async writev(parts: readonly Uint8Array[]) {
      const bytes = Buffer.concat(parts);
      await write(world, file, fd, bytes);
      return { bytesWritten: bytes.length };
    },
    sync() {
      const sync = (disk: Disk | undefined): void => {
        if (isFolder) disk?.syncedFolder(file);
        else if (inode !== undefined) disk?.synced(inode, readAll(fd));
      };
      if (world === undefined || inode === undefined) return call('fsync', file, ['EIO'], sync);
      const fault = (): { error: Error; done: boolean } => {
        if (!isFolder) world.disk.syncFailed(inode);
        return { error: systemError('EIO', 'fsync', relativeName(world.disk, file)), done: false };
      };
      return call('fsync', file, ['EIO'], sync, { fault });
    },
    // Closing frees the descriptor even if it fails.
    close: () => call('close', file, ['EIO'], closeNow, { fault: () => undefined }),
  };
}

async function open(file: string, flags: string | number, mode?: number): Promise<object> {
  const [fd, inode] = await call(
    'open',
    file,
    typeof flags === 'string' && flags !== 'r' ? [...readErrors, ...writeErrors] : readErrors,
    (disk) => {
      // Readable too, so that an fsync can record the bytes.
      const opened = fs.openSync(file, flags === 'w' || flags === 'wx' || flags === 'a' ? `${flags}+` : flags, mode);
      return [opened, disk?.inodeOf(file)] as const;
    },
  );
  return createHandle(file, fd, inode);
}

async function writeFile(file: string, data: string | Uint8Array, options?: { mode?: number }): Promise<void> {
  const handle = (await open(file, 'w', options?.mode)) as {
    writeFile(data: string | Uint8Array): Promise<void>;
    close(): Promise<void>;
  };
  try {
    await handle.writeFile(data);
  } finally {
    await handle.close();
  }
}

async function readFile(file: string, encoding?: BufferEncoding): Promise<string | Buffer> {
  const bytes = await call('read', file, readErrors, () => fs.readFileSync(file));
  return encoding === undefined ? bytes : bytes.toString(encoding);
}

/** Names in a random order: no file system promises one. */
async function readEntries(folder: string, recursive: boolean): Promise<{ entry: Fs.Dirent; path: string }[]> {
  return call('readdir', folder, readErrors, () => {
    const entries = fs
      .readdirSync(folder, { recursive, withFileTypes: true })
      .map((entry) => ({ entry, path: path.relative(folder, path.join(entry.parentPath, entry.name)) }))
      .toSorted((a, b) => (a.path < b.path ? -1 : 1));
    const random = activeWorld()?.random;
    if (random === undefined) return entries;
    return entries.map((one) => ({ ...one, at: random.next() })).toSorted((a, b) => a.at - b.at);
  });
}

async function readdir(
  folder: string,
  options: { recursive?: boolean; withFileTypes?: boolean } = {},
): Promise<(string | Fs.Dirent)[]> {
  const entries = await readEntries(folder, options.recursive === true);
  return entries.map((one) => (options.withFileTypes === true ? one.entry : one.path));
}

async function unlink(file: string): Promise<void> {
  await call(
    'unlink',
    file,
    ['EIO'],
    (disk) => {
      if (fs.existsSync(file)) disk?.removing(file);
      fs.unlinkSync(file);
    },
    { mayBeDone: true },
  );
}

/** Each entry is a separate operation: a kill may leave a partial folder. */
async function rm(file: string, options: { recursive?: boolean; force?: boolean } = {}): Promise<void> {
  const isFolder = await call('stat', file, ['EIO'], () =>
    fs.lstatSync(file, { throwIfNoEntry: false })?.isDirectory(),
  );
  if (isFolder === undefined && options.force === true) return;
  if (isFolder !== true || options.recursive !== true) return unlink(file);
  for (const { path: name } of await readEntries(file, false)) await rm(path.join(file, name), options);
  await call('rmdir', file, ['EIO'], (disk) => {
    disk?.removing(file);
    fs.rmdirSync(file);
  });
}

async function rmdir(folder: string): Promise<void> {
  await call('rmdir', folder, ['EIO'], (disk) => {
    fs.rmdirSync(folder);
    disk?.removing(folder);
  });
}

async function mkdir(
  folder: string,
  options: { recursive?: boolean; mode?: number } = {},
): Promise<string | undefined> {
  return call('mkdir', folder, writeErrors, (disk) => {
    const made = fs.mkdirSync(folder, options);
    disk?.made(folder);
    return made;
  });
}

const namePair = (name: string, to: string): string => `${name} to ${path.basename(to)},`;

async function rename(from: string, to: string): Promise<void> {
  activeWorld()?.touch(to);
  await call(
    namePair('rename', to),
    from,
    writeErrors,
    (disk) => {
      fs.lstatSync(from);
      disk?.renaming(from, to);
      fs.renameSync(from, to);
    },
    { mayBeDone: true },
  );
}

async function link(from: string, to: string): Promise<void> {
  activeWorld()?.touch(to);
  await call(
    namePair('link', to),
    from,
    writeErrors,
    (disk) => {
      fs.linkSync(from, to);
      disk?.linked(from, to);
    },
    { mayBeDone: true },
  );
}

/** The double of `node:fs/promises`. */
export const fileSystem = {
  open,
  writeFile,
  readFile,
  readdir,
  unlink,
  rm,
  rmdir,
  mkdir,
  rename,
  link,
  stat: (file: string) => call('stat', file, ['EIO'], () => fs.statSync(file)),
  realpath: (file: string) => call('realpath', file, ['EIO'], () => fs.realpathSync(file)),
  access: (file: string) => call('access', file, ['EIO'], () => fs.accessSync(file)),
};

/** The double of `createReadStream`: reads the whole file at once. */
export function createReadStream(file: string): Readable {
  return Readable.from(
    (async function* read() {
      yield await call('read', file, readErrors, () => fs.readFileSync(file));
    })(),
  );
}
