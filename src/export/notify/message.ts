import { createHash, createHmac } from 'node:crypto';
import type { Notice } from '../../lake/catalogue/catalogue-files.ts';
import { describeSlot, isInProgress, type ReportJob } from '../../reports/reports.ts';

/** A message: its id stays the same however often it is sent. */
export interface Message {
  readonly id: string;
  readonly body: string;
}

/** What a webhook is told of a notice of the catalogue: the same at every try, so without what has become of it since. */
export function renderNotice({ lastDate: _last, isOver: _over, ...notice }: Notice, idWebhook: string): Message {
  const id = `${idWebhook}.${notice.id}`;
  return { id, body: JSON.stringify({ id, type: 'catalogue.notice', timestamp: notice.foundAt, data: notice }) };
}

const exportDigits = 16;

/**
 * Names a request as no other is, in whichever copy of the folder: one that was restored from a backup gives out the ids
 * of requests since the backup once more, and a receiver passes over a message whose id it has had.
 */
function exportName({ nonce }: Pick<ReportJob, 'nonce'>): string {
  return `ex_${createHash('sha256').update(nonce).digest('hex').slice(0, exportDigits)}`;
}

/** What a webhook is told of an export that has ended: where to look, and never a link, which would be a key. */
export function renderMessage(job: ReportJob, idWebhook: string): Message {
  if (isInProgress(job)) throw new Error(`export ${job.id} has not ended`);
  const id = `${idWebhook}.${exportName(job)}`;
  const files = job.files ?? [];
  const status = { success: 'Success!', canceled: 'Canceled by user', user_failed: 'User error occurred' }[
    job.state as string
  ];
  const data = {
    idRawExport: String(job.id),
    idReportFile: String(job.id),
    event: job.event,
    status: status ?? 'Error occurred',
    ...describeSlot(job),
    ...(job.state === 'user_failed' ? { errorMessage: job.error ?? '' } : {}),
    ...(job.state === 'success'
      ? {
          files: files.length,
          rows: files.reduce((sum, file) => sum + file.rows, 0),
          bytes: files.reduce((sum, file) => sum + file.bytes, 0),
          version: job.basis === undefined ? undefined : String(job.basis.version),
          nextSinceVersion: job.basis?.nextSinceVersion,
        }
      : {}),
  };
  const timestamp = new Date(job.finishedMs ?? 0).toISOString();
  const type = job.state === 'success' ? 'export.finished' : 'export.failed';
  return { id, body: JSON.stringify({ id, type, timestamp, data }) };
}

/**
 * The headers of a message by Standard Webhooks: the receiver computes the HMAC-SHA256 of `id.timestamp.body` under the
 * bytes of its secret (base64, behind `whsec_`), and refuses a timestamp of long ago. `timestamp`: Unix seconds of this
 * try.
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
