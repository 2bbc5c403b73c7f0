import { expect, test } from 'vitest';
import { renderMessage, signMessage } from '../../../../src/export/notify/message.ts';
import { reportJob } from '../../../helpers/report-job.ts';

const job = reportJob({ id: 7, state: 'failed' });

test('A request that reuses an id after a restore has another message id, and the same request has the same one', () => {
  const { id, body } = renderMessage(job, 'wh_1');
  expect(renderMessage({ ...job, attempts: 2 }, 'wh_1').id).toBe(id);
  expect(id).toMatch(/^wh_1\.ex_[0-9a-f]{16}$/);
  expect(renderMessage({ ...job, nonce: '1'.repeat(32) }, 'wh_1').id).not.toBe(id);
  expect(renderMessage(job, 'wh_2').id).not.toBe(id);
  // The names of its files are secret.
  expect(body).not.toContain(job.nonce);
});

test('A message is signed by Standard Webhooks over its id, the time of the attempt and its body', () => {
  // The example of the specification.
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const signed = signMessage([secret], 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1_614_265_330, '{"test": 2432232314}');
  expect(signed).toMatchObject({
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
  const others = [
    signMessage([secret], 'msg_other', 1_614_265_330, '{"test": 2432232314}'),
    signMessage([secret], 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1_614_265_331, '{"test": 2432232314}'),
    signMessage([secret], 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1_614_265_330, '{"test": 2432232315}'),
    signMessage(['whsec_AAAA'], 'msg_p5jXN8AQM9LWM0D4loKWxJek', 1_614_265_330, '{"test": 2432232314}'),
  ].map((headers) => headers['webhook-signature']);
  expect(new Set([...others, signed['webhook-signature']]).size).toBe(5);
  // During a rotation both secrets sign.
  const both = signMessage(
    [secret, 'whsec_AAAA'],
    'msg_p5jXN8AQM9LWM0D4loKWxJek',
    1_614_265_330,
    '{"test": 2432232314}',
  );
  expect(both['webhook-signature']).toBe(`${signed['webhook-signature']} ${others[3]}`);
});
