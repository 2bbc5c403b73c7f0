import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { parseAction, type Action } from './actions.ts';

/** What the log folder of a table holds: versions of JSON commits and of checkpoints, both in growing order. */
export interface LogListing {
  readonly commits: readonly number[];
  readonly checkpoints: readonly number[];
}

/** The folder of the commits and checkpoints of a table. */
export function logFolder(tableDir: string): string {
  return path.join(tableDir, '_delta_log');
}

/** File name of a commit: its version, 20 digits. */
export function commitName(version: number): string {
  return `${String(version).padStart(20, '0')}.json`;
}

/** File name of a checkpoint. */
export function checkpointName(version: number): string {
  return `${String(version).padStart(20, '0')}.checkpoint.parquet`;
}

/** File name of the hash of a checkpoint's bytes. */
export function checkpointHashName(version: number): string {
  return `${String(version).padStart(20, '0')}.checkpoint.sha256`;
}

/** Lists the log; a table that does not exist yet has an empty one. */
export async function listLog(tableDir: string): Promise<LogListing> {
  let names: string[];
  try {
    names = await readdir(logFolder(tableDir));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return { commits: [], checkpoints: [] };
    throw error;
  }
  const versions = (pattern: RegExp): number[] =>
    names
      .flatMap((name) => pattern.exec(name)?.[1] ?? [])
      .map(Number)
      .toSorted((a, b) => a - b);
  return { commits: versions(/^(\d{20})\.json$/), checkpoints: versions(/^(\d{20})\.checkpoint\.parquet$/) };
}

/** A commit as it stands in the log. */
export interface Commit {
  readonly version: number;
  readonly actions: readonly Action[];
  /** SHA-256 of its bytes, hex: the next commit names it. */
  readonly sha256: string;
}

const plainHead = '{"commitInfo":{';
/**
 * What a commit of this service begins with: a hash of everything behind it. The hash of the whole file stands in the
 * next commit only.
 */
const sealedHead = (checksum: string): string => `${plainHead}"checksum":"${checksum}",`;
const checksumAt = sealedHead('').length - '",'.length;
const bodyAt = sealedHead('0'.repeat(64)).length;
/** The only version that wrote commits without a checksum. */
const uncheckedEngine = 'tributary/0.1';
/**
 * What only a commit of this service holds: one that has it is no other engine's, whatever has become of its first
 * bytes.
 */
const ownMarks = /"tributary":|"engineInfo":"tributary\//;

/** The bytes of a commit, whose first action is its provenance. */
export function renderCommit(actions: readonly Action[]): string {
  const text = actions.map((action) => `${JSON.stringify(action)}\n`).join('');
  assert(text.startsWith(plainHead), 'a commit begins with its provenance');
  const body = text.slice(plainHead.length);
  return `${sealedHead(hashCommit(body))}${body}`;
}

/**
 * Says what is wrong with the bytes of a commit; undefined when they are those that were written, or another engine's.
 */
function findDamage(bytes: Buffer, actions: readonly Action[]): string | undefined {
  if (actions.length === 0) return 'it is empty';
  const head = bytes.toString('latin1', 0, bodyAt);
  const checksum = head.slice(checksumAt, checksumAt + 64);
  const hasHead = head === sealedHead(checksum);
  const hasBody = hashCommit(bytes.subarray(bodyAt)) === checksum;
  if (hasHead && hasBody) return undefined;
  if (hasHead || hasBody) return 'its bytes are not those that were written';
  const info = actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
  return ownMarks.test(bytes.toString('utf8')) && info?.engineInfo !== uncheckedEngine
    ? 'it lacks its checksum'
    : undefined;
}

/** Hash of a commit's bytes, hex. */
export function hashCommit(text: string | Buffer): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Reads one commit. Errors: ENOENT as it is; `log_damaged` when its bytes are not those that were written, or a line
 * cannot be trusted.
 */
export async function readCommit(tableDir: string, version: number): Promise<Commit> {
  const file = path.join(logFolder(tableDir), commitName(version));
  const bytes = await readFile(file);
  const lines = bytes
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '');
  const actions = parseActions(lines, file);
  const damage = findDamage(bytes, actions);
  if (damage !== undefined)
    throw new AppError('log_damaged', `${file} is damaged: ${damage}`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  return { version, actions, sha256: hashCommit(bytes) };
}

/** Parses the lines of a commit or the rows of a checkpoint; `source` is the file to name when one is bad. */
export function parseActions(lines: readonly string[], source: string): Action[] {
  return lines.flatMap((line, index) => {
    const action = parseAction(line);
    if (typeof action === 'string') {
      throw new AppError('log_damaged', `${source} line ${index + 1}: ${action}`, {
        hint: "Run 'tributary lake check', and restore what it names from a backup.",
      });
    }
    return action ?? [];
  });
}
