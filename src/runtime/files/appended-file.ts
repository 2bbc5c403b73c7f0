import { open } from 'node:fs/promises';

/** A file that grows at its end, and begins with what is known to be good of it. */
interface AppendedFile {
  /** Its length, bytes. */
  readonly bytes: number;
  append(data: Uint8Array | string): Promise<void>;
  /** Makes what was appended survive a power cut; the name does once the caller has synced the folder. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens a file for appending behind its first `keptBytes`: what is behind them is cut off. One that is shorter keeps
 * what it has, and one that is not there is made, mode 0600.
 */
export async function openAppendedFile(file: string, keptBytes: number): Promise<AppendedFile> {
  const handle = await open(file, 'a', 0o600);
  let bytes: number;
  try {
    const { size } = await handle.stat();
    bytes = Math.min(size, keptBytes);
    if (size > bytes) await handle.truncate(bytes);
  } catch (error) {
    await handle.close();
    throw error;
  }
  return {
    get bytes() {
      return bytes;
    },
    async append(data) {
      const buffer = typeof data === 'string' ? Buffer.from(data) : data;
      // One write that fails half-way, as on a full disk, leaves no half record behind.
      try {
        await handle.appendFile(buffer);
      } catch (error) {
        await handle.truncate(bytes).catch(() => undefined);
        throw error;
      }
      bytes += buffer.length;
    },
    sync: () => handle.sync(),
    close: () => handle.close(),
  };
}
