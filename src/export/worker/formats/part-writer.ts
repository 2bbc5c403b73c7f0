import { createHash } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import type { ReportFile } from '../../../reports/reports.ts';

const compress = promisify(gzip);

/** Members being compressed at once, on libuv's threads. */
const membersInFlight = 4;
/**
 * What is written to a part in one piece is a member of its own, unless it is smaller than this: then it waits for the
 * next. Large enough to compress well, small enough to keep every thread busy.
 */
const memberMinBytes = 512 * 1024;

/**
 * The fastest level, with a window of 8 KiB: what rows repeat is a few rows away, and a window that the processor's
 * first cache holds is searched faster. The output comes in one piece, as a rule: one turn of the loop a member.
 */
const gzipOptions = { level: constants.Z_BEST_SPEED, windowBits: 13, memLevel: 9, chunkSize: 1024 * 1024 };

/**
 * A part being written: plain, or gzip members one after the other, which every reader takes for one stream.
 */
export interface PartWriter {
  /** Adds bytes, which it keeps until they are written. */
  write(bytes: Buffer): Promise<void>;
  /** Ends the part; it is durable then. Nothing else of it has to be waited for before the next part. */
  finish(rows: number): Promise<ReportFile>;
  /** Closes and removes a part that is not wanted. */
  abandon(): Promise<void>;
}

/** Opens a new part in a folder. The same writes give the same bytes. */
export async function openPart(folder: string, name: string, isCompressed: boolean): Promise<PartWriter> {
  const file = path.join(folder, name);
  const handle = await open(file, 'wx', 0o600);
  const hash = createHash('sha256');
  const compressing: Promise<Buffer>[] = [];
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let bytes = 0;
  let members = 0;

  async function store(member: Promise<Buffer> | undefined): Promise<void> {
    if (member === undefined) return;
    const data = await member;
    hash.update(data);
    bytes += data.length;
    await handle.writeFile(data);
  }

  function startMember(): void {
    members += 1;
    const whole = pending.length === 1 && pending[0] !== undefined ? pending[0] : Buffer.concat(pending);
    const member = isCompressed ? compress(whole, gzipOptions) : Promise.resolve(whole);
    // It is awaited later, in order; a failure before that must not count as unhandled.
    member.catch(() => undefined);
    compressing.push(member);
    pending = [];
    pendingBytes = 0;
  }

  return {
    async write(data) {
      pending.push(data);
      pendingBytes += data.length;
      if (pendingBytes < memberMinBytes) return;
      startMember();
      if (compressing.length >= membersInFlight) await store(compressing.shift());
    },
    async finish(rows) {
      // A file of no member at all is no gzip file.
      if (pendingBytes > 0 || members === 0) startMember();
      while (compressing.length > 0) await store(compressing.shift());
      await handle.sync();
      await handle.close();
      return { name, rows, bytes, sha256: hash.digest('hex') };
    },
    async abandon() {
      await Promise.allSettled(compressing);
      await handle.close().catch(() => undefined);
      await rm(file, { force: true });
    },
  };
}
