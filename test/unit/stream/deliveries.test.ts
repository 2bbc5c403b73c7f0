import { expect, test } from 'vitest';
import { createDeliveries, type Delivery } from '../../../src/stream/deliveries.ts';
import { createProtocolParser } from '../../../src/stream/protocol-parser.ts';

/** A request whose memory and answers can be looked at. */
function createRequest() {
  const seen: string[] = [];
  const memory = Buffer.alloc(5);
  const delivery: Delivery = {
    room: (bytes) => memory.subarray(0, bytes),
    message: (reply, payload) => void seen.push(`${reply} ${Buffer.from(payload).toString()}`),
    status: (code, text) => void seen.push(`${code} ${text}`),
    lost: (error) => void seen.push(error.message),
  };
  return { seen, memory, delivery };
}

function openDeliveries() {
  const deliveries = createDeliveries();
  const parser = createProtocolParser({ ...deliveries, line: () => undefined });
  return { deliveries, receive: (text: string) => parser.feed(Buffer.from(text)) };
}

test('A request gets its messages and the words of the broker, each as what it is', () => {
  const { deliveries, receive } = openDeliveries();
  const { seen, delivery } = createRequest();
  deliveries.add('1', '_INBOX.a.1', delivery);
  receive('MSG tributary.events 1 $JS.ACK.x 5\r\nhello\r\n');
  receive('HMSG tributary.events 1 $JS.ACK.y 12 17\r\nNATS/1.0\r\n\r\nworld\r\n');
  receive('HMSG _INBOX.a.1 1 28 28\r\nNATS/1.0 409 Batch Done\r\n\r\n \r\n');
  deliveries.lose(new Error('gone'));
  expect(seen).toEqual(['$JS.ACK.x hello', '$JS.ACK.y world', '409 Batch Done', 'gone']);
});

test('What comes for a request that was cut off, even in the middle of a message, changes nothing', () => {
  const { deliveries, receive } = openDeliveries();
  const { seen, memory, delivery } = createRequest();
  deliveries.add('1', '_INBOX.a.1', delivery);
  receive('MSG tributary.events 1 $JS.ACK.x 5\r\nhe');
  deliveries.remove('1');
  memory.fill('-');
  receive('llo\r\nMSG tributary.events 1 $JS.ACK.x 5\r\nworld\r\nHMSG _INBOX.a.1 1 16 16\r\nNATS/1.0 408\r\n\r\n\r\n');
  expect([seen, memory.toString()]).toEqual([[], '-----']);
});
