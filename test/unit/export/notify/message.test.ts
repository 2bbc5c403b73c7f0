import { expect, test } from 'vitest';
import { renderMessage } from '../../../../src/export/notify/message.ts';
import { reportJob } from '../../../helpers/report-job.ts';

const job = reportJob({ id: 7, state: 'failed' });

test('A request that was given the id of another one after a restore has another message, and the same one the same', () => {
  const { id, body } = renderMessage(job, 'wh_1');
  expect(renderMessage({ ...job, attempts: 2 }, 'wh_1').id).toBe(id);
  expect(id).toMatch(/^wh_1\.ex_[0-9a-f]{16}$/);
  expect(renderMessage({ ...job, nonce: '1'.repeat(32) }, 'wh_1').id).not.toBe(id);
  expect(renderMessage(job, 'wh_2').id).not.toBe(id);
  // The names of its files are secret.
  expect(body).not.toContain(job.nonce);
});
