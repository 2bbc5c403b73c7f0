import path from 'node:path';
import { describeError, isSystemError, isAppError } from '../runtime/errors.ts';
import { findInfo } from './log/actions.ts';
import { findLastCheckpoint, isCheckpointIntact } from './log/checkpoint.ts';
import { changesTable, toForeignCommit } from './log/table-state.ts';
import { type LakeState, type Restamp, findStateOf } from './log/lake-state.ts';
import {
  checkpointName,
  commitName,
  listLog,
  readCommit,
  type Commit,
  type LogListing,
  logStore,
  tableStore,
} from './log/log-files.ts';
import { findBrokenLines, findEnd, ledgerName } from './log/version-ledger.ts';
import { readSteps } from './log/version-points.ts';

type FindingKind =
  | 'missing_file'
  | 'truncated_file'
  | 'damaged_file'
  | 'unreferenced_file'
  | 'unnamed_table'
  | 'missing_log_entry'
  | 'damaged_log_entry'
  | 'damaged_checkpoint'
  | 'foreign_commit'
  | 'wrong_totals'
  | 'unreadable';

export interface Finding {
  readonly problem: FindingKind;
  /** Path relative to the lake's folder. */
  readonly path: string;
  readonly detail: string;
}

export function logPath(tableDir: string, name: string): string {
  return path.posix.join(path.basename(tableDir), '_delta_log', name);
}

function missingEntry(tableDir: string, version: number, detail: string): Finding {
  return { problem: 'missing_log_entry', path: logPath(tableDir, commitName(version)), detail };
}

function damagedEntry(tableDir: string, version: number, detail: string): Finding {
  return { problem: 'damaged_log_entry', path: logPath(tableDir, commitName(version)), detail };
}

/** Verifies the chain of the commits, in their order: complete, each naming the hash of the previous one. */
interface ChainCheck {
  /** Verifies the next existing version; `read` reads its commit. */
  take(version: number, read: () => Promise<Commit>): Promise<void>;
  problems(): Finding[];
}

function createChainCheck(tableDir: string): ChainCheck {
  const findings: Finding[] = [];
  let foreign: Finding[] = [];
  /** The previous version; without a hash if the entry is known to be damaged, which is reported once. */
  let previous: { readonly version: number; readonly sha256?: string } | undefined;

  function checkForeign(commit: Commit, lake: LakeState | undefined): void {
    const { version, actions } = commit;
    if (lake?.cause === 'repair') foreign = [];
    if (lake !== undefined || version === 0 || !changesTable(actions)) return;
    const { engine, operation, at } = toForeignCommit(version, findInfo(commit.actions));
    foreign.push({
      problem: 'foreign_commit',
      path: logPath(tableDir, commitName(version)),
      detail: `another engine (${engine}) has changed the table: ${operation}, at ${at ?? 'an unknown time'}; run 'tributary lake repair'`,
    });
  }

  /** Compares the bytes of the previous commit with their hash in this one. */
  function checkLink(version: number, lake: LakeState | undefined): void {
    if (previous?.version !== version - 1 || previous.sha256 === undefined || lake?.previous === undefined) return;
    if (lake.previous !== previous.sha256)
      findings.push(damagedEntry(tableDir, previous.version, 'its hash differs from that in the next commit'));
  }

  return {
    async take(version, read) {
      for (let lost = (previous?.version ?? version - 1) + 1; lost < version; lost += 1)
        findings.push(missingEntry(tableDir, lost, 'later versions exist'));
      try {
        const commit = await read();
        const lake = findStateOf(commit.actions);
        if (commit.actions.length === 0) {
          findings.push(damagedEntry(tableDir, version, 'it is empty'));
          previous = { version };
          return;
        }
        checkForeign(commit, lake);
        checkLink(version, lake);
        previous = { version, sha256: commit.sha256 };
      } catch (error) {
        // Trimmed since it was listed.
        if (!isSystemError(error, 'ENOENT')) findings.push(damagedEntry(tableDir, version, describeError(error)));
        previous = { version };
      }
    },
    problems: () => [...findings, ...foreign],
  };
}

/** Verifies that the listed versions reach from a start to the newest checkpoint. */
function checkReach(tableDir: string, { commits, checkpoints }: LogListing): Finding[] {
  const findings: Finding[] = [];
  const first = commits[0];
  const start = checkpoints.find((version) => version >= (first ?? 0));
  if (first !== undefined && first > 0 && start === undefined)
    findings.push(missingEntry(tableDir, 0, 'there is neither version 0 nor a checkpoint'));
  const newest = checkpoints.at(-1);
  if (newest !== undefined && (commits.at(-1) ?? -1) < newest)
    findings.push(missingEntry(tableDir, newest, 'the commits after the checkpoint are missing'));
  return findings;
}

/** Verifies that every commit exists, is intact and follows the previous one. */
export async function checkCommits(tableDir: string): Promise<{ problems: Finding[]; commits: number }> {
  const listed = await listLog(tableDir);
  const chain = createChainCheck(tableDir);
  const known = new Set(listed.commits);
  const [first = 0, newest = -1] = [listed.commits[0], listed.commits.at(-1)];
  for (let version = first; version <= newest; version += 1) {
    // A concurrent listing may have a commit and not the previous one.
    const isThere = known.has(version) || (await logStore(tableDir).findSize(commitName(version))) !== undefined;
    if (isThere) await chain.take(version, () => readCommit(tableDir, version));
  }
  return { problems: [...chain.problems(), ...checkReach(tableDir, listed)], commits: listed.commits.length };
}

/** Verifies every checkpoint, and that the one in `_last_checkpoint` exists. */
export async function checkCheckpoints(tableDir: string): Promise<Finding[]> {
  // Before the listing: a concurrent checkpoint is not a missing one.
  const last = await findLastCheckpoint(tableDir);
  const { checkpoints } = await listLog(tableDir);
  const findings: Finding[] = [];
  const report = (version: number, detail: string): void =>
    void findings.push({ problem: 'damaged_checkpoint', path: logPath(tableDir, checkpointName(version)), detail });
  if (last !== undefined && !checkpoints.includes(last.version)) report(last.version, 'it is not there');
  for (const version of checkpoints) {
    // Trimmed since it was listed.
    if (!(await isCheckpointIntact(tableDir, version).catch((error: unknown) => isSystemError(error, 'ENOENT'))))
      report(version, 'checksum mismatch');
  }
  return findings;
}

const ledgerAdvice = 'cursors that need it are rejected; restore it from a backup';

/** Verifies the ledger of trimmed versions, and that it is complete. */
async function checkLedger(tableDir: string): Promise<Finding[]> {
  const at = path.posix.join(path.basename(tableDir), ledgerName);
  // Before the ledger: trimmed commits were in the ledger before.
  const { commits } = await listLog(tableDir);
  const broken = await findBrokenLines(tableStore(tableDir));
  const { last, isCutOff } = await findEnd(tableStore(tableDir));
  const report = (what: string): Finding => ({ problem: 'damaged_file', path: at, detail: `${what}; ${ledgerAdvice}` });
  const covered = last?.version ?? -1;
  const first = commits[0] ?? 0;
  // A lake of an earlier version has no ledger until its log is trimmed.
  const isShort = (last !== undefined || isCutOff) && covered < first - 1;
  return [
    ...(broken.length === 0 ? [] : [report(`checksum mismatch in lines ${broken.join(', ')}`)]),
    ...(isShort ? [report(`it ends with version ${covered}, and the log begins with ${first}`)] : []),
  ];
}

/** Verifies the positions of versions: the ledger, and the steps of repairs of the clock. */
export async function checkVersionLedger(tableDir: string, restamps: readonly Restamp[] = []): Promise<Finding[]> {
  const findings = await checkLedger(tableDir);
  for (const { steps } of restamps) {
    if (steps === undefined) continue;
    const size = await tableStore(tableDir).findSize(steps);
    const problem = size === undefined ? 'missing_file' : 'damaged_file';
    await readSteps(tableDir, steps).catch((error: unknown) => {
      if (!isAppError(error, 'log_damaged')) throw error;
      findings.push({ problem, path: path.posix.join(path.basename(tableDir), steps), detail: describeError(error) });
    });
  }
  return findings;
}
