import { createHash, createHmac } from 'node:crypto';
import type { Notice } from '../../lake/catalogue/catalogue-files.ts';
import type { ScheduleStop } from '../../schedules/schedules.ts';
import type { MessageType } from '../../webhooks/delivery-log.ts';
import { describeSlot, isInProgress, sumFiles, type ReportJob, type ReportState } from '../../reports/reports.ts';

/** A message to a webhook. Each attempt sends the same id. */
export interface Message {
  readonly id: string;
  readonly type: MessageType;
  /** Id of the export, notice or schedule; empty for a test. */
  readonly subject: string;
  readonly body: string;
}

interface MessageContent {
  readonly id: string;
  readonly type: MessageType;
  readonly subject: string;
  readonly timestamp: string;
  readonly data: object;
}

function render({ id, type, subject, timestamp, data }: MessageContent): Message {
  return { id, type, subject, body: JSON.stringify({ id, type, timestamp, data }) };
}

/** Renders the message of a notice, without the members that change later. */
export function renderNotice({ lastDate: _last, isResolved: _over, ...notice }: Notice, idWebhook: string): Message {
  const id = `${idWebhook}.${notice.id}`;
  return render({ id, type: 'catalogue.notice', subject: notice.id, timestamp: notice.foundAt, data: notice });
}

const exportDigits = 16;

const hashDigits = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, exportDigits);

/** Names an export by its nonce: a restored folder allocates ids again, and receivers ignore known message ids. */
function exportName({ nonce }: ReportJob): string {
  return `ex_${hashDigits(nonce)}`;
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
  return render({ id, type, subject: String(job.id), timestamp, data });
}

/** Returns the id of a stop, in its messages. */
export const stopId = ({ idSchedule, atMs }: ScheduleStop): string => `st_${hashDigits(`${idSchedule} ${atMs}`)}`;

/** Renders the message that a schedule has stopped. */
export function renderStop(stop: ScheduleStop, idWebhook: string): Message {
  const { idAccount: _, atMs, ...data } = stop;
  const timestamp = new Date(atMs).toISOString();
  const id = `${idWebhook}.${stopId(stop)}`;
  return render({ id, type: 'schedule.stopped', subject: stop.idSchedule, timestamp, data });
}

/** Renders a message that a user sends as a test. `name`: 16 hex digits. */
export function renderTest(idWebhook: string, name: string, nowMs: number): Message {
  const id = `${idWebhook}.te_${name}`;
  return render({ id, type: 'webhook.test', subject: '', timestamp: new Date(nowMs).toISOString(), data: {} });
}

/**
 * Signs a message by Standard Webhooks and returns its headers: HMAC-SHA256 of `id.timestamp.body` under the base64
 * bytes of each `whsec_...`: two during a rotation. `timestamp`: time of this attempt, Unix s; receivers reject old ones.
 */
export function signMessage(
  secrets: readonly string[],
  id: string,
  timestamp: number,
  body: string,
): Record<string, string> {
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  });
  return {
    'content-type': 'application/json',
    'user-agent': 'tributary',
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signatures.join(' '),
  };
}
