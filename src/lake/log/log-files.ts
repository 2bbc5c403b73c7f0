import { tableFileMode, tableFolderMode } from '../../runtime/files/group-access.ts';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { parseAction, type Action, findInfo, logDamaged } from './actions.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { missingObject, type ObjectStore } from '../../runtime/store/object-store.ts';

/** Versions of the commits and checkpoints of a log folder, ascending. */
export interface LogListing {
  readonly commits: readonly number[];
  readonly checkpoints: readonly number[];
}

/** Opens the objects of a table, by keys relative to its folder. */
export function tableStore(tableDir: string): ObjectStore {
  return openStore(tableDir, { mode: tableFileMode, folderMode: tableFolderMode, isGrowing: true });
}

export function logFolder(tableDir: string): string {
  return path.join(tableDir, '_delta_log');
}

export function logStore(tableDir: string): ObjectStore {
  return openStore(logFolder(tableDir), { mode: tableFileMode, isGrowing: true });
}

/** Returns the file name of a commit: its version in 20 digits. */
export function commitName(version: number): string {
  return `${String(version).padStart(20, '0')}.json`;
}

export function checkpointName(version: number): string {
  return `${String(version).padStart(20, '0')}.checkpoint.parquet`;
}

export function checkpointHashName(version: number): string {
  return `${String(version).padStart(20, '0')}.checkpoint.sha256`;
}

export async function listLog(tableDir: string): Promise<LogListing> {
  const names = await logStore(tableDir).list('');
  const versions = (pattern: RegExp): number[] =>
    names
      .flatMap((name) => pattern.exec(name)?.[1] ?? [])
      .map(Number)
      .toSorted((a, b) => a - b);
  return { commits: versions(/^(\d{20})\.json$/), checkpoints: versions(/^(\d{20})\.checkpoint\.parquet$/) };
}

export interface Commit {
  readonly version: number;
  readonly actions: readonly Action[];
  /** SHA-256 of its bytes, hex, which the next commit stores. */
  readonly sha256: string;
}

const plainHead = '{"commitInfo":{';
/** The start of this service's commits, with a hash of the rest. The next commit has the hash of the entire file. */
const sealedHead = (checksum: string): string => `${plainHead}"checksum":"${checksum}",`;
const checksumAt = sealedHead('').length - '",'.length;
const bodyAt = sealedHead('0'.repeat(64)).length;
/** The only version that wrote commits without a checksum. */
const uncheckedEngine = 'tributary/0.1';
/** Text that only this service's commits contain, also with damaged first bytes. */
const ownMarks = /"tributary":|"engineInfo":"tributary\//;

/** Renders a commit, whose first action is its provenance. */
export function renderCommit(actions: readonly Action[]): string {
  const text = actions.map((action) => `${JSON.stringify(action)}\n`).join('');
  assert(text.startsWith(plainHead), 'a commit begins with its provenance');
  const body = text.slice(plainHead.length);
  return `${sealedHead(hashCommit(body))}${body}`;
}

function findDamage(bytes: Buffer, actions: readonly Action[]): string | undefined {
  if (actions.length === 0) return 'it is empty';
  const head = bytes.toString('latin1', 0, bodyAt);
  const checksum = head.slice(checksumAt, checksumAt + 64);
  const hasHead = head === sealedHead(checksum);
  const hasBody = hashCommit(bytes.subarray(bodyAt)) === checksum;
  if (hasHead && hasBody) return undefined;
  if (hasHead || hasBody) return 'checksum mismatch';
  const info = findInfo(actions);
  return ownMarks.test(bytes.toString('utf8')) && info?.engineInfo !== uncheckedEngine ? 'missing checksum' : undefined;
}

export function hashCommit(text: string | Buffer): string {
  return createHash('sha256').update(text).digest('hex');
}

export async function readCommit(tableDir: string, version: number): Promise<Commit> {
  const commit = await findCommit(tableDir, version);
  if (commit === undefined) throw missingObject(logStore(tableDir).nameOf(commitName(version)));
  return commit;
}

/** Finds a commit. Error: `log_damaged` if its bytes have changed or a line is invalid. */
export async function findCommit(tableDir: string, version: number): Promise<Commit | undefined> {
  const store = logStore(tableDir);
  const file = store.nameOf(commitName(version));
  const found = await store.get(commitName(version));
  if (found === undefined) return undefined;
  const bytes = Buffer.from(found.bytes.buffer, found.bytes.byteOffset, found.bytes.length);
  const lines = bytes
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '');
  const actions = parseActions(lines, file);
  const damage = findDamage(bytes, actions);
  if (damage !== undefined) throw logDamaged(`${file} is damaged: ${damage}`);
  return { version, actions, sha256: hashCommit(bytes) };
}

/** Parses lines of a commit or rows of a checkpoint. `source`: the file, for errors. */
export function parseActions(lines: readonly string[], source: string): Action[] {
  return lines.flatMap((line, index) => {
    const action = parseAction(line);
    if (typeof action === 'string') {
      throw logDamaged(`${source} line ${index + 1}: ${action}`);
    }
    return action ?? [];
  });
}
