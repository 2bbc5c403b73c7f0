import { callApi, type AnswerOf } from '../frame/client.ts';

/** A piece of the list of exports; times are Unix seconds. */
export type ExportPage = AnswerOf<'/api/raw/v1/export/list.json'>;
export type ExportLine = ExportPage['exports'][number];
/** One export with its links. */
export type ExportState = AnswerOf<'/api/raw/v1/export/get.json'>;

/** Asks for the newest exports below an id. */
export function listExports(before: string | undefined, signal: AbortSignal): Promise<ExportPage> {
  return callApi('/api/raw/v1/export/list.json', { given: { limit: '25', before }, signal });
}

/** Asks for an export with its links. */
export function getExport(idRawExport: string, signal: AbortSignal): Promise<ExportState> {
  return callApi('/api/raw/v1/export/get.json', { given: { idRawExport }, signal });
}

/** Ends an export that waits or runs. */
export async function cancelExport(idRawExport: string): Promise<void> {
  await callApi('/api/raw/v1/export/cancel.json', { method: 'POST', given: { idRawExport } });
}

/** Whether an export waits or runs. */
export function isInProgress({ status }: Pick<ExportLine, 'status'>): boolean {
  return status === 'In progress';
}
