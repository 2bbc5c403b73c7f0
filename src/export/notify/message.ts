import { createHash, createHmac } from 'node:crypto';
import type { Notice } from '../../lake/catalogue/catalogue-files.ts';
import { describeSlot, isInProgress, sumFiles, type ReportJob, type ReportState } from '../../reports/reports.ts';

/** A message to a webhook. Each attempt sends the same id. */
export interface Message {
  readonly id: string;
  readonly body: string;
}

/** Renders the message of a notice, without the members that change later. */
export function renderNotice({ lastDate: _last, isResolved: _over, ...notice }: Notice, idWebhook: string): Message {
  const id = `${idWebhook}.${notice.id}`;
  return { id, body: JSON.stringify({ id, type: 'catalogue.notice', timestamp: notice.foundAt, data: notice }) };
}

const exportDigits = 16;

/** Names an export by its nonce: a restored folder allocates ids again, and receivers ignore known message ids. */
function exportName({ nonce }: ReportJob): string {
  return `ex_${createHash('sha256').update(nonce).digest('hex').slice(0, exportDigits)}`;
}

const statuses: Partial<Record<ReportState, string>> = {
  success: 'Success!',
  canceled: 'Canceled by user',
  user_failed: 'User error occurred',
};

/** Renders the message of a finished export. It has no link, which would be a key. */
export function renderMessage(job: ReportJob, idWebhook: string): Message {
  if (isInProgress(job)) throw new Error(`export ${job.id} has not ended`);
  const id = `${idWebhook}.${exportName(job)}`;
  const { state, basis, files = [] } = job;
  const data = {
    idRawExport: String(job.id),
    idReportFile: String(job.id),
    event: job.event,
    status: statuses[state] ?? 'Error occurred',
    ...describeSlot(job),
    ...(state === 'user_failed' ? { errorMessage: job.error ?? '' } : {}),
    ...(state === 'success' ? { ...sumFiles(files), version: basis && String(basis.version) } : {}),
    ...(state === 'success' ? { nextSinceVersion: basis?.nextSinceVersion } : {}),
  };
  const timestamp = new Date(job.finishedMs ?? 0).toISOString();
  const type = state === 'success' ? 'export.finished' : 'export.failed';
  return { id, body: JSON.stringify({ id, type, timestamp, data }) };
}

/**
 * Signs a message by Standard Webhooks and returns its headers: HMAC-SHA256 of `id.timestamp.body` under the base64
 * bytes of `whsec_...`. `timestamp`: time of this attempt, Unix s; receivers reject old ones.
 */
export function signMessage(secret: string, id: string, timestamp: number, body: string): Record<string, string> {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return {
    'content-type': 'application/json',
    'user-agent': 'tributary',
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': `v1,${signature}`,
  };
}
