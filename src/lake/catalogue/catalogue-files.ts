import path from 'node:path';
import { type FileRecords, openFileRecords } from '../../runtime/store/file-records.ts';
import { createFolderStore } from '../../runtime/store/folder-store.ts';
import { type Records, createRecords } from '../../runtime/store/records.ts';
import { shapeOf } from '../../runtime/store/shape.ts';

/** The record of the folded catalogue in its folder (runtime/store/file-records.ts). */
export const catalogueName = 'catalogue';

/**
 * The form of packs, and so of what is made of them: those of another form are made again. v1: examples that one person
 * may have sent alone; v2: numbers as JavaScript writes them were texts.
 */
export const catalogueForm = 'v3';

/** Where the catalogue lies below the lake's folder. */
export function cataloguePaths(lakeDir: string) {
  const root = path.resolve(lakeDir);
  const folder = path.join(root, 'catalogue');
  return {
    root,
    /** Of the fold, and of what it was made of. */
    folder,
    packs: path.join(folder, 'packs'),
    notices: path.join(folder, 'notices.json'),
    keyNotices: path.join(folder, 'key-notices.json'),
    viewsSql: path.join(root, 'views.sql'),
  } as const;
}

/** What the record of the fold says beside its file. */
export interface FoldFacts {
  readonly form?: string;
  /** The digest of its parts. */
  readonly parts?: string;
  readonly tableVersion?: number;
  readonly missingFiles?: number;
}

const isFacts = (document: unknown): document is FoldFacts => typeof document === 'object';

/** Opens the file of the folded catalogue. */
export function openFolds(lakeDir: string): FileRecords<FoldFacts> {
  const damaged = {
    code: 'record_damaged',
    hint: "Remove the folder 'catalogue' of the lake: the compactor makes it anew.",
  } as const;
  return openFileRecords(cataloguePaths(lakeDir).folder, { isValid: isFacts, damaged }, false);
}

/** What may be worth a look in the events of an app. */
export const noticeKinds = [
  'parameter_new',
  'parameter_lost',
  'parameter_changed',
  'volume_fallen',
  'key_reused',
] as const;
export type NoticeKind = (typeof noticeKinds)[number];

/** A notice of the catalogue; each is written once. */
export interface Notice {
  /** The same for the same thing, whoever finds it. */
  readonly id: string;
  readonly kind: NoticeKind;
  readonly idApp: number;
  /** Undefined: of all custom events of the app. */
  readonly customEventName?: string;
  readonly parameter?: string;
  /** The UTC date of the events by which it was found. */
  readonly date: string;
  /** When it was found, ISO 8601. */
  readonly foundAt: string;
  /** In words, with its figures. */
  readonly what: string;
  /** The newest date by which it was so still, where that is a later one. */
  readonly lastDate?: string;
  /** A later look found that it is so no more. */
  readonly isOver?: true;
}

/** The newest are kept: those of fifty apps of which each has as many as it may. */
const mostNotices = 5000;

type NoticeList = { readonly notices: readonly Notice[] };

/** Opens the lists of notices in the folder of the catalogue. */
function openLists(lakeDir: string): Records<NoticeList> {
  return createRecords(createFolderStore(cataloguePaths(lakeDir).folder), {
    isValid: shapeOf<NoticeList>({ notices: Array.isArray }),
    damaged: { code: 'record_damaged', hint: 'Remove it: what is still so is found again.' },
  });
}

const [foundId, keysId] = ['notices', 'key-notices'];

/** Reads a list; none where it is gone or damaged. */
async function readList(lakeDir: string, id: string): Promise<readonly Notice[]> {
  return (await openLists(lakeDir).getSound(id))?.notices ?? [];
}

/** Writes a list, durably; without any notice there is none. */
async function writeList(lakeDir: string, id: string, notices: readonly Notice[]): Promise<void> {
  if (notices.length === 0) await openLists(lakeDir).remove(id);
  else await openLists(lakeDir).put(id, { notices: notices.slice(0, mostNotices) });
}

/** Reads all notices of all apps, newest first. */
export async function readNotices(lakeDir: string): Promise<Notice[]> {
  const all = [...(await readList(lakeDir, foundId)), ...(await readList(lakeDir, keysId))];
  return all.toSorted((a, b) => Date.parse(b.foundAt) - Date.parse(a.foundAt));
}

/** Reads the notices that the catalogue has found; a file that is gone is found again. */
export function readFoundNotices(lakeDir: string): Promise<readonly Notice[]> {
  return readList(lakeDir, foundId);
}

/** Writes the notices that the catalogue has found, durably. */
export function writeNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  return writeList(lakeDir, foundId, notices);
}

/**
 * Adds notices of events that a flush could not store, each id once, durably. They have a file of their own: the
 * catalogue writes the other one at the same time.
 */
export async function addKeyNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  const known = await readList(lakeDir, keysId);
  const added = notices.filter(({ id }) => !known.some((other) => other.id === id));
  if (added.length > 0) await writeList(lakeDir, keysId, [...added, ...known]);
}
