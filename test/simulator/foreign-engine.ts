import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { AddAction } from '../../src/lake/log/actions.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { commitName, logFolder } from '../../src/lake/log/log-files.ts';
import { repairLake } from '../../src/lake/repair/repair-lake.ts';
import { loadTableState } from '../../src/lake/log/snapshot.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { describeError } from '../../src/runtime/errors.ts';
import type { Play } from './compactors.ts';
import type { Process } from './world.ts';

/** Writes and syncs a file as another program does. */
function put({ world: { disk } }: Play, file: string, write: (file: string) => void): void {
  write(file);
  disk.made(file);
  disk.synced(disk.inodeOf(file), readFileSync(file));
  disk.syncedFolder(path.dirname(file));
}

function commit(play: Play, tableDir: string, version: number, operation: string, actions: readonly object[]): void {
  const info = { commitInfo: { timestamp: play.world.clock.nowMs(), operation, engineInfo: 'Other-Engine/1.0' } };
  const log = logFolder(tableDir);
  put(play, path.join(log, commitName(version)), (file) =>
    writeFileSync(file, [info, ...actions].map((action) => `${JSON.stringify(action)}\n`).join(''), { flag: 'wx' }),
  );
  // Spark leaves a checksum file next to each commit permanently.
  put(play, path.join(log, `.${commitName(version)}.crc`), (file) => writeFileSync(file, 'crc'));
  play.world.count('foreignCommits');
  play.world.note(`another engine commits version ${version}, ${operation}`);
}

/** Returns a copy of a data file as another engine names it. */
function copyOf(play: Play, tableDir: string, add: AddAction, dataChange: boolean): object {
  const name = `part-00000-${play.world.random.hex(12)}.parquet`;
  put(play, path.join(tableDir, name), (file) => copyFileSync(path.join(tableDir, decodeURIComponent(add.path)), file));
  const { tags: _, ...plain } = add;
  return { add: { ...plain, path: name, dataChange } };
}

/**
 * Commits to the table as another engine: a clean-up without changes, rewritten files, removed or added rows. Added
 * rows are copies of existing ones, so that a reader that accepts them sees duplicates.
 */
export async function commitForeign(play: Play): Promise<void> {
  const { table } = lakePaths(play.lakeDir);
  const { random } = play.world;
  const { version, files } = await loadTableState(table);
  if (version < 0) return;
  const nowMs = play.world.clock.nowMs();
  const live = [...files.values()].filter((add) => existsSync(path.join(table, decodeURIComponent(add.path))));
  const kind = live.length === 0 ? 'clean-up' : random.pick(['clean-up', 'optimize', 'append', 'delete'] as const);
  if (kind === 'clean-up') {
    commit(play, table, version + 1, 'VACUUM START', []);
    commit(play, table, version + 2, 'VACUUM END', []);
    return;
  }
  const chosen = random.pick(live);
  const remove = { remove: { path: chosen.path, deletionTimestamp: nowMs, dataChange: kind === 'delete' } };
  if (kind === 'optimize') commit(play, table, version + 1, 'OPTIMIZE', [remove, copyOf(play, table, chosen, false)]);
  else if (kind === 'append') commit(play, table, version + 1, 'WRITE', [copyOf(play, table, chosen, true)]);
  else commit(play, table, version + 1, 'DELETE', [remove]);
}

/** Reports whether another engine has changed the table since the last repair. */
export async function isForeign({ lakeDir }: Play): Promise<boolean> {
  return (await loadTableState(lakePaths(lakeDir).table)).foreign !== undefined;
}

/** Starts `tributary lake repair` as an operator. It may fail by injected errors, and is then run again. */
export function startRepair({ world, lakeDir, home }: Play): Process {
  const process = world.start(
    `${path.basename(home)} repair`,
    async () => {
      try {
        const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
        const { repaired, version } = await repairLake({
          lakeDir,
          duckdb,
          clock: world.clock,
          crashPoint: noCrashPoint,
        }).finally(() => duckdb.close());
        if (repaired) world.count('repairs');
        world.note(`repair: ${repaired ? 'repaired' : 'nothing to repair'}, version ${version}`);
      } catch (error) {
        world.note(`repair fails: ${describeError(error)}`);
      }
      world.kill(process);
    },
    home,
  );
  return process;
}
