/** Reads the body of one of node's requests once, within a bound, and puts it back. */

import type { IncomingMessage } from "node:http";

/** The body is, or says it is, larger than the bound. */
export class BodyTooLarge extends Error {}

/** The client disconnected before its request was complete. */
export class ClientGone extends Error {}

/** A stream of node's requests, or one that stands for it. */
export type RequestStream = Pick<IncomingMessage, "headers" | "read" | "unshift" | "on" | "off" | "resume"> & {
  readonly complete?: boolean;
  readonly destroyed?: boolean;
};

/**
 * The whole body, however it is chunked; never holds more than `maxBytes` and one chunk.
 *
 * With `isPutBack`, whoever reads the stream afterwards reads the same bytes. Rejects with `BodyTooLarge`
 * (the rest is read and dropped), or with `ClientGone`.
 */
export async function readBody(stream: RequestStream, maxBytes: number, isPutBack: boolean): Promise<Buffer> {
  const declared = stream.headers["content-length"];
  if (declared !== undefined && /^\d+$/.test(declared) && Number(declared) > maxBytes) {
    stream.resume();
    throw new BodyTooLarge();
  }
  // What is never read has not ended, for whoever waits for that.
  if (declared === "0") return Buffer.alloc(0);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;

    function end(): void {
      stream.off("readable", onReadable);
      stream.off("end", onComplete);
      stream.off("close", onGone);
      stream.off("error", onGone);
    }
    function onReadable(): void {
      for (;;) {
        const chunk = stream.read() as Buffer | string | null;
        if (chunk === null) break;
        const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
        length += bytes.length;
        if (length > maxBytes) {
          end();
          stream.resume();
          reject(new BodyTooLarge());
          return;
        }
        chunks.push(bytes);
      }
      if (isComplete(stream)) onComplete();
    }
    function onComplete(): void {
      end();
      const body = Buffer.concat(chunks, length);
      // In the very turn in which it was read: after it, the stream has ended.
      if (isPutBack && length > 0) stream.unshift(body);
      resolve(body);
    }
    function onGone(): void {
      end();
      reject(new ClientGone());
    }

    stream.on("readable", onReadable);
    stream.on("end", onComplete);
    stream.on("close", onGone);
    stream.on("error", onGone);
    if (stream.destroyed === true) onGone();
  });
}

/** Whether all of the body has arrived. Of streams that stand for a request only node's own state tells. */
function isComplete(stream: RequestStream): boolean {
  const { _readableState: state } = stream as { _readableState?: { ended?: boolean } };
  return state?.ended ?? stream.complete === true;
}
