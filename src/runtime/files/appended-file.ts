import { open } from 'node:fs/promises';

interface AppendedFile {
  readonly fd: number;
  readonly bytes: number;
  append(data: Uint8Array | string): Promise<void>;
  /** Makes appended bytes durable. The caller syncs the folder of a new file. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** Opens a file for appending, truncated to its first `keptBytes`. Creates a missing file (mode 0600 by default). */
export async function openAppendedFile(file: string, keptBytes: number, mode = 0o600): Promise<AppendedFile> {
  const handle = await open(file, 'a', mode);
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
    fd: handle.fd,
    get bytes() {
      return bytes;
    },
    async append(data) {
      const buffer = typeof data === 'string' ? Buffer.from(data) : data;
      // A write that fails partway, as on a full disk, leaves no partial record.
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
