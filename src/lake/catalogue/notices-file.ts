import { findTextFile, removeFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { cataloguePaths } from './catalogue-paths.ts';

/** What may be worth a look in the events of an app. */
export const noticeKinds = ['parameter_new', 'parameter_lost', 'parameter_changed', 'volume_fallen'] as const;
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

/** Reads the notices of all apps, newest first; none where the file is gone or damaged: they are found again. */
export async function readNotices(lakeDir: string): Promise<Notice[]> {
  const text = await findTextFile(cataloguePaths(lakeDir).notices);
  if (text === undefined) return [];
  try {
    const { notices } = parseChecked(text);
    return Array.isArray(notices) ? (notices as Notice[]) : [];
  } catch {
    return [];
  }
}

/** Writes them, durably; without any there is no file. */
export async function writeNotices(lakeDir: string, notices: readonly Notice[]): Promise<void> {
  if (notices.length === 0) return await removeFile(cataloguePaths(lakeDir).notices);
  await writeFileDurably(cataloguePaths(lakeDir).notices, renderChecked({ notices: notices.slice(0, mostNotices) }));
}
