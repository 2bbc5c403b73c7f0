/**
 * Commits a change of a table that brings files: seal, erasure, enrichment, new columns, replay, repair, load or
 * unload.
 *
 * In: complete, fsynced files in the change's folder below `staging/`. Out: the files under new names in the table, a
 * commit that names them, and follow-ups, such as their links for readers of folders.
 * Order: record, hard links, fsync of their folders, commit, follow-ups, removal of the record.
 * Invariant: a data file's name is used once, and its bytes never change.
 * Crash: recovery removes links without a commit, and completes the follow-ups of a commit. The folder is locked while
 * its process lives.
 */
import path from 'node:path';
import { isTableName } from '../../datasets/pipeline-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import {
  ensureFolder,
  ensureFolders,
  findTextFile,
  removeFile,
  syncFolder,
  syncFolders,
  writeFileDurably,
  moveFile,
} from '../../runtime/files/durable-file.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import type { BuildChange, Table } from '../log/table.ts';
import { isFirstOfPublishedPath } from '../log/young-folder.ts';
import {
  assertInsideLake,
  damagedRecord,
  parseChangeRecord,
  renderRecord,
  type ChangeRecord,
} from './change-record.ts';
import { finishEarlier, intentName } from './earlier-rewrite.ts';
import { isCommitted } from './failed-events.ts';
import { publishFile } from './deferred-replacement.ts';
import { forEachLeftover, openStagingFolder } from './staging.ts';
import { tableStore } from './data-file.ts';

export const changeSteps = [
  'change-written',
  'file-linked',
  'files-linked',
  'change-committed',
  'change-followed',
  'change-ended',
] as const;

/** A complete file of a change: absolute path, and new path relative to the table's folder. */
export interface NewFile {
  readonly file: string;
  readonly path: string;
}

/** Actions after the commit, outside the table. */
export type FollowUp = Partial<Pick<ChangeRecord, 'moves' | 'unlink'>>;

export interface OpenChange {
  /** Id of the commit, also in the names of its files. */
  readonly id: string;
  readonly folder: string;
  makeRoom(name: string): Promise<string>;
  /**
   * Publishes and commits the files. An error leaves the table unchanged unless the commit is in doubt. Errors: those
   * of `build`, `commit_conflict` if a removed file is no longer live.
   */
  commit(files: readonly NewFile[], build: BuildChange, followUp?: FollowUp): Promise<void>;
  close(): Promise<void>;
}

const recordFile = (folder: string): string => path.join(folder, 'change.json');

/** Opens a change of a table in the table's `stagingDir`. `isLoad`: it holds no lock of the table. */
export async function openChange(
  table: Table,
  stagingDir: string,
  holder: string,
  crashPoint: CrashPoint,
  isLoad = false,
): Promise<OpenChange> {
  const staging = await openStagingFolder(stagingDir, holder, isLoad);
  const { id, folder } = staging;
  const lakeDir = path.dirname(table.dir);

  async function linkFiles(record: ChangeRecord, files: readonly NewFile[]): Promise<void> {
    await writeFileDurably(recordFile(folder), renderRecord(lakeDir, record));
    // A power failure could otherwise lose the folder and leave links without a record.
    await syncFolder(stagingDir);
    await crashPoint('change-written');
    await tableStore(table.dir).publish(
      files.map((one) => ({ key: one.path, file: one.file })),
      () => crashPoint('file-linked'),
    );
    await crashPoint('files-linked');
  }

  return {
    id,
    folder,
    async makeRoom(name) {
      const room = path.join(folder, name);
      await ensureFolder(room);
      return room;
    },
    async commit(files, build, { moves = [], unlink = [] } = {}) {
      const record: ChangeRecord = {
        commitId: id,
        baseVersion: table.state().version,
        files: files.map((one) => path.join(table.dir, one.path)),
        moves,
        unlink,
      };
      try {
        await linkFiles(record, files);
        await table.commit((state, lake) => {
          const change = build(state, lake);
          const replacedFile = change.actions.find(
            ({ remove }) => remove !== undefined && !state.files.has(remove.path),
          );
          if (replacedFile !== undefined)
            throw new AppError('commit_conflict', `${replacedFile.remove?.path} was replaced by a concurrent change`, {
              hint: 'Retry the command.',
            });
          return change;
        }, id);
      } catch (error) {
        // Only a commit that certainly does not exist may be withdrawn.
        if (!(await isCommitted(table.dir, record.baseVersion, id))) await withdraw(folder, record);
        throw error;
      }
      await crashPoint('change-committed');
      await follow(table, folder, record);
      await crashPoint('change-followed');
      await endRecord(folder);
      await crashPoint('change-ended');
    },
    async close() {
      let isInDoubt = true;
      try {
        isInDoubt = await exists(recordFile(folder));
      } finally {
        // The next recovery settles a commit in doubt.
        await staging.close(isInDoubt);
      }
    },
  };
}

async function endRecord(folder: string): Promise<void> {
  await removeFile(recordFile(folder));
  // A power failure could otherwise restore the record after its commit was trimmed, and recovery would remove its
  // files.
  await syncFolder(folder);
}

async function withdraw(folder: string, { files }: ChangeRecord): Promise<void> {
  for (const file of files) await removeFile(file);
  await endRecord(folder);
}

/** Executes the follow-ups of a commit. Idempotent. */
async function follow(table: Table, folder: string, { files, moves, unlink }: ChangeRecord): Promise<void> {
  const firsts = files
    .map((file) => path.relative(table.dir, file).split(path.sep).join('/'))
    .filter((relative) => isFirstOfPublishedPath(relative));
  await ensureFolders(
    firsts.map((relative) => path.dirname(path.join(table.dir, relative.slice(relative.indexOf('/') + 1)))),
    tableFolderMode,
  );
  for (const relative of firsts) await publishFile(table.dir, relative, folder);
  for (const { name, to } of moves) {
    const from = path.join(folder, name);
    if (await exists(from)) await moveFile(from, to);
  }
  for (const file of unlink) await removeFile(file);
  await syncFolders([...moves.map(({ to }) => to), ...unlink].map((file) => path.dirname(file)));
}

async function settle(table: Table, folder: string): Promise<boolean> {
  const intent = await findTextFile(path.join(folder, intentName));
  if (intent !== undefined) return finishEarlier(table, folder, intent);
  const text = await findTextFile(recordFile(folder));
  if (text === undefined) return false;
  const lakeDir = path.dirname(table.dir);
  const record = parseChangeRecord(recordFile(folder), text, lakeDir);
  const touched = [...record.files, ...record.moves.map(({ to }) => to), ...record.unlink];
  await assertInsideLake(lakeDir, record.commitId, touched);
  const stranger = touched.find((file) => {
    const [first = ''] = path.relative(lakeDir, file).split(path.sep);
    return isTableName(first) && first !== path.basename(table.dir);
  });
  if (stranger !== undefined) throw damagedRecord(`${recordFile(folder)} names ${stranger}, a file of another table`);
  await table.refresh();
  const { files, tombstones } = table.state();
  const isNamed = record.files.some((file) => {
    const encoded = encodeURI(path.relative(table.dir, file).split(path.sep).join('/'));
    return files.has(encoded) || tombstones.has(encoded);
  });
  if (!isNamed && !(await isCommitted(table.dir, record.baseVersion, record.commitId))) {
    await withdraw(folder, record);
    return false;
  }
  await follow(table, folder, record);
  await endRecord(folder);
  return true;
}

/** Completes or reverts interrupted changes. Returns the number of committed ones. Error: `rewrite_damaged`. */
export async function recoverChanges(table: Table, stagingDir: string): Promise<number> {
  let finished = 0;
  await forEachLeftover(stagingDir, async (folder) => {
    if (await settle(table, folder)) finished += 1;
  });
  return finished;
}
