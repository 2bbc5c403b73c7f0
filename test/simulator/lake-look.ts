import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { findLakeState, type LakeState } from '../../src/lake/log/lake-state.ts';
import { commitName, logFolder, parseActions } from '../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import type { Disk } from './disk.ts';

/** The lake at one instant, as readers see it. */
export interface LakeLook {
  readonly version: number;
  /** Names of the events of the snapshot, and of those that the glob matches. */
  readonly snapshot: readonly string[];
  readonly glob: readonly string[];
  /** Whether the newest commit would survive a power cut. */
  readonly isDurable: boolean;
}

/** Names by the hash of a file's bytes: most files are read often and never change. */
const known = new Map<string, readonly string[]>();

async function readNames(file: string): Promise<readonly string[]> {
  const hash = createHash('sha256').update(readFileSync(file)).digest('hex');
  const names = known.get(hash);
  if (names !== undefined) return names;
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    const rows = await duckdb.rows(
      `SELECT custom_user_id FROM read_parquet(${sqlText(file)}, hive_partitioning = false)`,
    );
    const found = rows.map((row) => String(row['custom_user_id']));
    known.set(hash, found);
    return found;
  } finally {
    duckdb.close();
  }
}

async function readAll(files: readonly string[]): Promise<string[]> {
  const names: string[] = [];
  for (const file of files) names.push(...(await readNames(file)));
  return names;
}

/** Reads the lake while nothing else runs; a missing lake is empty. */
export async function lookAtLake(disk: Disk, lakeDir: string): Promise<LakeLook> {
  const { table } = lakePaths(lakeDir);
  const { version, files } = await readSnapshot(table);
  const glob =
    version < 0
      ? []
      : readdirSync(table, { recursive: true, encoding: 'utf8' }).filter((name) =>
          /^kind=[^/]*\/date=[^/]*\/[^/]*\.parquet$/.test(name),
        );
  return {
    version,
    snapshot: await readAll(files.map((file) => file.absolutePath)),
    glob: await readAll(glob.toSorted().map((name) => path.join(table, name))),
    isDurable: version >= 0 && disk.durableFiles(logFolder(table)).has(commitName(version)),
  };
}

/** The service's part of a commit, with its version. */
export interface OwnCommit {
  readonly version: number;
  readonly lake: LakeState;
}

/** Lists the service's commits in the log, newest first, without those of other engines. */
export function* ownCommits(lakeDir: string): Generator<OwnCommit> {
  const folder = logFolder(lakePaths(lakeDir).table);
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)
    .filter((entry) => /^\d{20}\.json$/.test(entry))
    .toSorted()
    .toReversed()) {
    const actions = parseActions(
      readFileSync(path.join(folder, name), 'utf8')
        .split('\n')
        .filter((line) => line !== ''),
      name,
    );
    const lake = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo);
    if (lake !== undefined) yield { version: Number(name.slice(0, 20)), lake };
  }
}

/** Returns the newest of the service's commits; undefined if it has none. */
export function newestCommit(lakeDir: string): OwnCommit | undefined {
  return ownCommits(lakeDir).next().value ?? undefined;
}
