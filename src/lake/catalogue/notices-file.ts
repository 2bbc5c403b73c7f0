import path from 'node:path';
import { ensureFolder, findTextFile, removeFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { cataloguePaths } from './catalogue-paths.ts';

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

/** Reads the notices of a file; none where it is gone or damaged. */
async function readFile(file: string): Promise<Notice[]> {
  const text = await findTextFile(file);
  if (text === undefined) return [];
  try {
    const { notices } = parseChecked(text);
    return Array.isArray(notices) ? (notices as Notice[]) : [];
  } catch {
    return [];
  }
}

/** Writes them, durably; without any there is no file. */
async function writeFile(file: string, notices: readonly Notice[]): Promise<void> {
  if (notices.length === 0) return await removeFile(file);
  await ensureFolder(path.dirname(file));
  await writeFileDurably(file, renderChecked({ notices: notices.slice(0, mostNotices) }));
}

/** Reads all notices of all apps, newest first. */
export async function readNotices(lakeDir: string): Promise<Notice[]> {
  const { notices, keyNotices } = cataloguePaths(lakeDir);
  const all = [...(await readFile(notices)), ...(await readFile(keyNotices))];
  return all.toSorted((a, b) => Date.parse(b.foundAt) - Date.parse(a.foundAt));
}

/** Reads the notices that the catalogue has found; a file that is gone is found again. */
export function readFoundNotices(lakeDir: string): Promise<Notice[]> {
  return readFile(cataloguePaths(lakeDir).notices);
}

/** Writes the notices that the catalogue has found, durably. */
export function writeNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  return writeFile(cataloguePaths(lakeDir).notices, notices);
}

/**
 * Adds notices of events that a flush could not store, each id once, durably. They have a file of their own: the
 * catalogue writes the other one at the same time.
 */
export async function addKeyNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  const file = cataloguePaths(lakeDir).keyNotices;
  const known = await readFile(file);
  const added = notices.filter(({ id }) => !known.some((other) => other.id === id));
  if (added.length > 0) await writeFile(file, [...added, ...known]);
}
