import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { accountFolder, type WebhookPaths } from './webhook-store.ts';

/** Which notices of the catalogue a webhook has been told, and how it goes on. */
export interface ToldNotices {
  /** Ids of those that it has taken, the newest last. */
  readonly told: readonly string[];
  /** Ids of those that it has not taken yet although it was sent them: they come after the others. */
  readonly failed: readonly string[];
  /** Tries in a row that have failed, and when the next is due, Unix milliseconds. */
  readonly failures: number;
  readonly nextMs: number;
}

/** More than there are notices at a time, those that are no more included, so that none is told anew for the bound. */
const mostTold = 8000;

const nothingTold: ToldNotices = { told: [], failed: [], failures: 0, nextMs: 0 };

function noticesPath(paths: WebhookPaths, idAccount: number): string {
  return path.join(accountFolder(paths, idAccount), 'notices.json');
}

const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((text) => typeof text === 'string');
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

function isToldNotices(value: unknown): value is ToldNotices {
  const { told, failed, failures, nextMs } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return isTexts(told) && isTexts(failed) && isCount(failures) && isCount(nextMs);
}

/** What the webhooks of an account have been told, by the id of each. */
export type ToldByWebhook = ReadonlyMap<string, ToldNotices>;

/** What one of them has been told. */
export function toldTo(told: ToldByWebhook, idWebhook: string): ToldNotices {
  return told.get(idWebhook) ?? nothingTold;
}

/** Reads it; nothing where there is no file, or one that is damaged: then each is told once more. */
export async function readToldNotices(paths: WebhookPaths, idAccount: number): Promise<ToldByWebhook> {
  const text = await findTextFile(noticesPath(paths, idAccount));
  if (text === undefined) return new Map();
  try {
    const { webhooks } = parseChecked(text);
    const entries = Object.entries((webhooks ?? {}) as Readonly<Record<string, unknown>>);
    return new Map(entries.filter((entry): entry is [string, ToldNotices] => isToldNotices(entry[1])));
  } catch {
    return new Map();
  }
}

/** Writes it, durably. It names no app, event or parameter: what is erased is not in it. */
export async function writeToldNotices(paths: WebhookPaths, idAccount: number, told: ToldByWebhook): Promise<void> {
  const webhooks = Object.fromEntries(
    [...told].map(([idWebhook, one]) => [idWebhook, { ...one, told: one.told.slice(-mostTold) }]),
  );
  await writeFileDurably(noticesPath(paths, idAccount), renderChecked({ webhooks }));
}
