"""The peers' own ways to go from items to batches, each as its documentation recommends for speed.

A workload says what is done to one item (`make`) and how items become a batch (`collate`); what is
compared is how a peer runs that on two cores. Everything here is imported in the peer's own
environment, so each function imports what it needs.
"""

IMAGES = (
    "peers without image operators of their own use torchvision's transforms v2 on uint8; "
    "JPEG by libjpeg-turbo in all"
)
