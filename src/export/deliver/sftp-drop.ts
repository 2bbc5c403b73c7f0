import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type LookupFunction, type Socket } from 'node:net';
import path from 'node:path';
import type { Client, SFTPWrapper } from 'ssh2';
import type { FolderTarget } from '../../destinations/destination-store.ts';
import { withTimeout } from '../../runtime/async/in-parallel.ts';
import { checkHash, type FileDrop } from '../../runtime/store/s3-drop.ts';
import type { ByteSource } from '../../runtime/store/s3-write.ts';

/** Time limits of a connection, and of a call, ms. */
const [connectMs, idleMs] = [15_000, 60_000];
/** Bytes that are read at a time, and those of one write. */
const [blockBytes, writeBytes] = [1024 * 1024, 32 * 1024];
/** Status of SFTP for a file that does not exist. */
const noSuchFile = 2;

type Callback<T> = (error: Error | null | undefined, value?: T) => void;

/** Runs a call of the library, which must answer within the limit. */
function ask<T>(what: string, call: (done: Callback<T>) => void): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what}: no answer within ${idleMs} ms`)), idleMs);
    call((error, value) => {
      clearTimeout(timer);
      if (error === undefined || error === null) resolve(value as T);
      else reject(new Error(`${what}: ${error.message}`, { cause: error }));
    });
  });
}

async function openSocket({ host, port }: FolderTarget, lookup: LookupFunction, signal: AbortSignal): Promise<Socket> {
  const socket = connect({ host, port, lookup });
  // An error without a listener would end the process, also one after the connect.
  socket.on('error', () => undefined);
  const timer = setTimeout(() => socket.destroy(new Error(`no connection within ${connectMs} ms`)), connectMs);
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the fingerprint of a server's key as `ssh-keygen -l` prints it. */
function fingerprintOf(key: Buffer): string {
  return `SHA256:${createHash('sha256').update(key).digest('base64').replace(/=+$/, '')}`;
}

/** Signs in by a call. A server that closes the connection before the end of the sign-in is an error, too. */
function signIn(client: Client, call: () => void): Promise<void> {
  const ready = new Promise<void>((resolve, reject) => {
    client.once('ready', resolve).once('error', reject);
    client.once('close', () => reject(new Error('the server closed the connection before the sign-in')));
    call();
  });
  return withTimeout(connectMs, ready);
}

/** Connects and signs in; a server with another key than the pinned one gets no credentials. */
async function openClient(
  target: FolderTarget,
  secret: string,
  lookup: LookupFunction,
  signal: AbortSignal,
): Promise<Client> {
  // Loaded on demand: few services deliver to folders.
  const { default: ssh2 } = await import('ssh2');
  const sock = await openSocket(target, lookup, signal);
  const client = new ssh2.Client();
  // As for the socket: the listeners of a wait end with it.
  client.on('error', () => undefined);
  let otherKey: string | undefined;
  const abort = (): void => void sock.destroy(signal.reason);
  signal.addEventListener('abort', abort);
  const credentials = secret.includes('PRIVATE KEY') ? { privateKey: secret } : { password: secret };
  try {
    const settings = {
      sock,
      username: target.user,
      ...credentials,
      readyTimeout: connectMs,
      keepaliveInterval: 10_000,
      keepaliveCountMax: 3,
      hostVerifier(key: Buffer): boolean {
        const fingerprint = fingerprintOf(key);
        if (fingerprint !== target.hostKey) otherKey = fingerprint;
        return fingerprint === target.hostKey;
      },
    };
    await signIn(client, () => void client.connect(settings));
    return client;
  } catch (error) {
    client.destroy();
    sock.destroy();
    if (otherKey !== undefined) throw new Error(`the server has another key: ${otherKey}`, { cause: error });
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

async function findSize(sftp: SFTPWrapper, file: string): Promise<number | undefined> {
  try {
    return (await ask<{ readonly size: number }>(`cannot read ${file}`, (done) => sftp.stat(file, done))).size;
  } catch (error) {
    const { cause } = error as { readonly cause?: { readonly code?: number } };
    if (cause?.code === noSuchFile) return undefined;
    throw error;
  }
}

/** Writes all bytes of a source into a new file, and returns their hash. */
async function writeFile(sftp: SFTPWrapper, file: string, source: ByteSource): Promise<string> {
  const what = `cannot write ${file}`;
  const handle = await ask<Buffer>(what, (done) => sftp.open(file, 'w', done));
  const hash = createHash('sha256');
  for (let at = 0; at < source.sizeBytes;) {
    const block = Buffer.from(await source.read(at, Math.min(blockBytes, source.sizeBytes - at)));
    if (block.length === 0) throw new Error(`${what}: the report file is shorter than recorded`);
    hash.update(block);
    const starts = Array.from({ length: Math.ceil(block.length / writeBytes) }, (_, index) => index * writeBytes);
    const from = at;
    await Promise.all(
      starts.map((start) => {
        const length = Math.min(writeBytes, block.length - start);
        return ask<void>(what, (done) => sftp.write(handle, block, start, length, from + start, done));
      }),
    );
    at += block.length;
  }
  // Not every server can sync a file.
  await ask<void>(what, (done) => sftp.ext_openssh_fsync(handle, done)).catch(() => undefined);
  await ask<void>(what, (done) => sftp.close(handle, done));
  return hash.digest('hex');
}

/** Renames a complete file. A file of that name has another size: it is replaced. */
async function rename(sftp: SFTPWrapper, from: string, to: string): Promise<void> {
  const what = `cannot rename ${from}`;
  try {
    await ask<void>(what, (done) => sftp.ext_openssh_rename(from, to, done));
  } catch {
    // Without the extension, a rename does not replace.
    if ((await findSize(sftp, to)) !== undefined) await ask<void>(what, (done) => sftp.unlink(to, done));
    await ask<void>(what, (done) => sftp.rename(from, to, done));
  }
}

/**
 * Opens the folder of an SFTP server. Each file is written under a temporary name, `.NAME.<16 hex>.part`, and renamed.
 * Crash: the temporary file stays until the file is delivered again.
 */
export async function openFolderDrop(
  target: FolderTarget,
  secret: string,
  lookup: LookupFunction,
  signal: AbortSignal,
): Promise<FileDrop> {
  const client = await openClient(target, secret, lookup, signal);
  const abort = (): void => void client.destroy();
  // Calls in progress fail.
  client.on('error', abort);
  signal.addEventListener('abort', abort);
  const close = (): void => {
    signal.removeEventListener('abort', abort);
    client.destroy();
  };
  try {
    const sftp = await ask<SFTPWrapper>('cannot open SFTP', (done) => client.sftp(done));
    const inFolder = (name: string): string => path.posix.join(target.folder, name);
    const names = await ask<readonly { readonly filename: string }[]>(`cannot list ${target.folder}`, (done) =>
      sftp.readdir(target.folder, done),
    );
    return {
      async put(name, source, sha256) {
        const file = inFolder(name);
        if ((await findSize(sftp, file)) === source.sizeBytes) return;
        for (const { filename } of names)
          if (filename.startsWith(`.${name}.`) && filename.endsWith('.part'))
            await ask<void>('cannot remove', (done) => sftp.unlink(inFolder(filename), done)).catch(() => undefined);
        const temporary = inFolder(`.${name}.${randomBytes(8).toString('hex')}.part`);
        checkHash(name, sha256)(await writeFile(sftp, temporary, source));
        await rename(sftp, temporary, file);
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}
