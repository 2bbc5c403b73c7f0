import path from 'node:path';
import { acceptFormerNames } from '../../runtime/former-names.ts';
import { type FileRecords, openFileRecords } from '../../runtime/store/file-records.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { type Records, createRecords } from '../../runtime/store/records.ts';
import { shapeOf } from '../../runtime/store/shape.ts';

export const catalogueName = 'catalogue';
export const viewsName = 'views.sql';

/** Form of packs and of their fold. Other forms are recreated. */
export const catalogueForm = 'v3';

export function cataloguePaths(lakeDir: string) {
  const root = path.resolve(lakeDir);
  const folder = path.join(root, 'catalogue');
  return {
    root,
    folder,
    packs: path.join(folder, 'packs'),
    notices: path.join(folder, 'notices.json'),
    keyNotices: path.join(folder, 'key-notices.json'),
    viewsSql: path.join(root, viewsName),
  } as const;
}

export interface MergedCatalogueInfo {
  readonly form?: string;
  readonly parts?: string;
  readonly tableVersion?: number;
  readonly missingFiles?: number;
}

const isFacts = (document: unknown): document is MergedCatalogueInfo => typeof document === 'object';

export function openMergedCatalogues(lakeDir: string): FileRecords<MergedCatalogueInfo> {
  const damaged = {
    code: 'record_damaged',
    hint: "Remove the folder 'catalogue' of the lake: the compactor recreates it.",
  } as const;
  return openFileRecords(cataloguePaths(lakeDir).folder, { isValid: isFacts, damaged }, false);
}

export const noticeKinds = [
  'parameter_new',
  'parameter_lost',
  'parameter_changed',
  'volume_fallen',
  'key_reused',
] as const;
type NoticeKind = (typeof noticeKinds)[number];

export interface Notice {
  /** Equal for the same change. */
  readonly id: string;
  readonly kind: NoticeKind;
  readonly idApp: number;
  /** Absent: all custom events of the app. */
  readonly customEventName?: string;
  readonly parameter?: string;
  readonly date: string;
  readonly foundAt: string;
  readonly what: string;
  /** Newest date on which it was confirmed, if later. */
  readonly lastDate?: string;
  readonly isResolved?: true;
}

/** Limit of notices; the newest are kept. Enough for fifty apps. */
const maxNotices = 5000;

type NoticeList = { readonly notices: readonly Notice[] };

function openLists(lakeDir: string): Records<NoticeList> {
  return createRecords(openStore(cataloguePaths(lakeDir).folder), {
    isValid: shapeOf<NoticeList>({ notices: Array.isArray }),
    damaged: { code: 'record_damaged', hint: 'Remove it: notices that still apply are found again.' },
  });
}

const [foundId, keysId] = ['notices', 'key-notices'];

async function readList(lakeDir: string, id: string): Promise<readonly Notice[]> {
  const { notices = [] } = (await openLists(lakeDir).getSound(id)) ?? {};
  return notices.map((notice) => acceptFormerNames('notice', notice) as unknown as Notice);
}

async function writeList(lakeDir: string, id: string, notices: readonly Notice[]): Promise<void> {
  if (notices.length === 0) await openLists(lakeDir).remove(id);
  else await openLists(lakeDir).put(id, { notices: notices.slice(0, maxNotices) });
}

/** Reads the notices of both lists, newest first. Damaged lists are skipped. */
export async function readNotices(lakeDir: string): Promise<Notice[]> {
  const all = [...(await readList(lakeDir, foundId)), ...(await readList(lakeDir, keysId))];
  return all.toSorted((a, b) => Date.parse(b.foundAt) - Date.parse(a.foundAt));
}

/** Returns a text that changes with the notices of both lists. */
export async function findNoticesTag(lakeDir: string): Promise<string> {
  const store = openStore(cataloguePaths(lakeDir).folder);
  return String(await Promise.all([foundId, keysId].map((id) => store.findTag(`${id}.json`))));
}

export const readFoundNotices = (lakeDir: string) => readList(lakeDir, foundId);

export const writeNotices = (lakeDir: string, notices: readonly Notice[]) => writeList(lakeDir, foundId, notices);

/** Adds notices of events that a flush could not store, durably and once per id. Only flushes write this list. */
export async function addKeyNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  const known = await readList(lakeDir, keysId);
  const added = notices.filter(({ id }) => !known.some((other) => other.id === id));
  if (added.length > 0) await writeList(lakeDir, keysId, [...added, ...known]);
}
