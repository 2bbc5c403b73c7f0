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
import { ensureFolder, findTextFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { findText } from '../../runtime/store/object-store.ts';
import type { BuildChange, Table } from '../log/table.ts';
import {
  assertInsideLake,
  damagedRecord,
  keyOf,
  parseChangeRecord,
  renderRecord,
  type ChangeRecord,
} from './change-record.ts';
import { finishEarlier, intentName } from './earlier-rewrite.ts';
import { isCommitted } from './failed-events.ts';
import { publishFirst } from './deferred-replacement.ts';
import { forEachLeftover, openStagingFolder } from './staging.ts';
import { tableStore } from '../log/log-files.ts';
import { lakeStore } from './data-file.ts';

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

/** The objects of a change, in the lake with the path of its folder: its record, and what moves after the commit. */
function openObjects(table: Table, folder: string) {
  const lakeDir = path.dirname(table.dir);
  const toKey = (file: string): string => keyOf(lakeDir, file);
  const stagedKey = (name: string): string => toKey(path.join(folder, name));
  return { store: lakeStore(lakeDir), folder, toKey, stagedKey, record: stagedKey('change.json') };
}

type ChangeObjects = ReturnType<typeof openObjects>;

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
  const objects = openObjects(table, folder);
  const { store, toKey, stagedKey } = objects;

  async function linkFiles(record: ChangeRecord, files: readonly NewFile[]): Promise<void> {
    for (const { name } of record.moves)
      await store.upload(stagedKey(name), path.join(folder, name), { isSynced: true });
    await store.replace(objects.record, Buffer.from(renderRecord(record)), 'any');
    // A power failure could otherwise lose the folder and leave links without a record.
    await syncFolder(stagingDir);
    await crashPoint('change-written');
    const published = files.map(({ path: key, file }) => ({ key, file }));
    await tableStore(table.dir).publish(published, () => crashPoint('file-linked'));
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
        files: files.map((one) => toKey(path.join(table.dir, one.path))),
        moves: moves.map(({ name, to }) => ({ name, to: toKey(to) })),
        unlink: unlink.map(toKey),
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
        if (!(await isCommitted(table.dir, record.baseVersion, id))) await withdraw(objects, record);
        throw error;
      }
      await crashPoint('change-committed');
      await follow(table, objects, record);
      await crashPoint('change-followed');
      await endRecord(objects);
      await crashPoint('change-ended');
    },
    async close() {
      let isInDoubt = true;
      try {
        isInDoubt = (await store.findSize(objects.record)) !== undefined;
      } finally {
        // The next recovery settles a commit in doubt.
        await staging.close(isInDoubt);
      }
    },
  };
}

/** Removes the record durably: recovery would remove the files of a commit that was trimmed since. */
async function endRecord({ store, record }: ChangeObjects): Promise<void> {
  await store.remove([record]);
}

async function withdraw(objects: ChangeObjects, { files, moves }: ChangeRecord): Promise<void> {
  await objects.store.remove([...files, ...moves.map(({ name }) => objects.stagedKey(name))]);
  await endRecord(objects);
}

const pathIn = (table: Table, key: string): string => path.posix.relative(path.basename(table.dir), key);

/** Executes the follow-ups of a commit. Idempotent. */
async function follow(
  table: Table,
  { store, folder, stagedKey }: ChangeObjects,
  { files, moves, unlink }: ChangeRecord,
): Promise<void> {
  const relatives = files.map((key) => pathIn(table, key));
  await publishFirst(table.dir, relatives, folder);
  for (const { name, to } of moves)
    if ((await store.findSize(stagedKey(name))) !== undefined) await store.move(stagedKey(name), to);
  await store.remove(unlink);
  // Also what a killed process has moved or removed.
  await store.sync([...moves.map(({ to }) => to), ...unlink]);
}

async function settle(table: Table, folder: string): Promise<boolean> {
  const intent = await findTextFile(path.join(folder, intentName));
  if (intent !== undefined) return finishEarlier(table, folder, intent);
  const objects = openObjects(table, folder);
  const text = await findText(objects.store, objects.record);
  if (text === undefined) return false;
  const file = objects.store.nameOf(objects.record);
  const record = parseChangeRecord(file, text);
  const touched = [...record.files, ...record.moves.map(({ to }) => to), ...record.unlink];
  if (objects.store.folder !== undefined) await assertInsideLake(objects.store.folder, record.commitId, touched);
  const stranger = touched.find((key) => {
    const [first = ''] = key.split('/');
    return isTableName(first) && first !== path.basename(table.dir);
  });
  if (stranger !== undefined)
    throw damagedRecord(`${file} names ${objects.store.nameOf(stranger)}, a file of another table`);
  await table.refresh();
  const { files, tombstones } = table.state();
  const isNamed = record.files.some((key) => {
    const encoded = encodeURI(pathIn(table, key));
    return files.has(encoded) || tombstones.has(encoded);
  });
  if (!isNamed && !(await isCommitted(table.dir, record.baseVersion, record.commitId))) {
    await withdraw(objects, record);
    return false;
  }
  await follow(table, objects, record);
  await endRecord(objects);
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
